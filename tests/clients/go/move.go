package main

import (
	"context"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	atOnce     = 20
	everyThird = 3 // of the transactions is aborted, and its records come again
)

// Who moves records from one topic to another in transactions, offsets with them.
type mover interface {
	move(source, sink, group string, count int) error
}

func (f *franz) move(source, sink, group string, count int) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(f.bootstrap), kgo.TransactionalID(group), kgo.ConsumerGroup(group), kgo.ConsumeTopics(source),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for number, done := 1, 0; done < count; number++ {
		fetches := session.PollRecords(ctx, atOnce)
		if err := fetches.Err(); err != nil {
			return err
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: sink, Key: one.Key, Value: one.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(number%everyThird != 0))
		if err != nil {
			return err
		}
		if committed {
			done += fetches.NumRecords()
		}
	}
	return nil
}

func (s *saramas) move(source, sink, group string, count int) error {
	config := *s.config
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Producer.Transaction.ID, config.Net.MaxOpenRequests = group, 1
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	producer, err := sarama.NewSyncProducer(s.bootstrap, &config)
	if err != nil {
		return err
	}
	defer producer.Close()
	consumer, err := sarama.NewConsumer(s.bootstrap, &config)
	if err != nil {
		return err
	}
	defer consumer.Close()
	for partition := int32(0); partition < partitions; partition++ {
		claim, err := consumer.ConsumePartition(source, partition, sarama.OffsetOldest)
		if err != nil {
			return err
		}
		for number, done := 1, 0; done < count/partitions; number++ {
			var messages []*sarama.ProducerMessage
			var last int64
			for len(messages) < atOnce && done+len(messages) < count/partitions {
				one := <-claim.Messages()
				last = one.Offset
				message := sarama.ProducerMessage{
					Topic: sink, Key: sarama.ByteEncoder(one.Key), Value: sarama.ByteEncoder(one.Value),
				}
				messages = append(messages, &message)
			}
			place := sarama.PartitionOffsetMetadata{Partition: partition, Offset: last + 1}
			offsets := map[string][]*sarama.PartitionOffsetMetadata{source: {&place}}
			for _, isCommit := range []bool{number%everyThird != 0, true} {
				if err := s.moveOnce(producer, messages, offsets, group, isCommit); err != nil {
					return err
				}
				if isCommit {
					break
				}
			}
			done += len(messages)
		}
	}
	return nil
}

func (s *saramas) moveOnce(
	producer sarama.SyncProducer, messages []*sarama.ProducerMessage,
	offsets map[string][]*sarama.PartitionOffsetMetadata, group string, isCommit bool,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	if err := producer.SendMessages(messages); err != nil {
		return err
	}
	if err := producer.AddOffsetsToTxn(offsets, group); err != nil {
		return err
	}
	if isCommit {
		return producer.CommitTxn()
	}
	return producer.AbortTxn()
}
