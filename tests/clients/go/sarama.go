package main

import (
	"context"
	"time"

	"github.com/IBM/sarama"
)

// sarama: the protocol versions of its default configuration, an eager group.
type saramas struct {
	bootstrap []string
	config    *sarama.Config
}

func newSarama(bootstrap string) (client, error) {
	config := sarama.NewConfig()
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	return &saramas{[]string{bootstrap}, config}, nil
}

func (s *saramas) fill(topic string) error {
	admin, err := sarama.NewClusterAdmin(s.bootstrap, s.config)
	if err != nil {
		return err
	}
	defer admin.Close()
	policy := compactValue
	detail := sarama.TopicDetail{
		NumPartitions: partitions, ReplicationFactor: 1, ConfigEntries: map[string]*string{compaction: &policy},
	}
	if err := admin.CreateTopic(topic, &detail, false); err != nil {
		return err
	}
	for _, codec := range []sarama.CompressionCodec{0, 1, 2, 3, 4} {
		config := *s.config
		config.Producer.Compression = codec
		producer, err := sarama.NewSyncProducer(s.bootstrap, &config)
		if err != nil {
			return err
		}
		var messages []*sarama.ProducerMessage
		for _, one := range batch(codec.String()) {
			message := sarama.ProducerMessage{
				Topic: topic, Key: sarama.StringEncoder(one.Key),
				Headers: []sarama.RecordHeader{{Key: []byte(headerKey), Value: []byte(one.Codec)}},
			}
			if one.Value != nil {
				message.Value = sarama.StringEncoder(*one.Value)
			}
			messages = append(messages, &message)
		}
		err = producer.SendMessages(messages)
		producer.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

type handler struct {
	ctx      context.Context
	cancel   context.CancelFunc
	messages chan *sarama.ConsumerMessage
	read     chan struct{} // closed when all was read
}

func (h *handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (h *handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h *handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message := <-claim.Messages():
			if message == nil {
				return nil
			}
			session.MarkMessage(message, "")
			h.messages <- message
		case <-h.read:
			session.Commit()
			h.cancel()
			return nil
		case <-session.Context().Done():
			return nil
		}
	}
}

func (s *saramas) read(topic, group string) ([]record, []int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	plain, err := sarama.NewClient(s.bootstrap, s.config)
	if err != nil {
		return nil, nil, err
	}
	defer plain.Close()
	next, ends := make([]int64, partitions), make([]int64, partitions)
	for partition := range ends {
		if ends[partition], err = plain.GetOffset(topic, int32(partition), sarama.OffsetNewest); err != nil {
			return nil, nil, err
		}
	}
	consumer, err := sarama.NewConsumerGroup(s.bootstrap, group, s.config)
	if err != nil {
		return nil, nil, err
	}
	one := &handler{ctx, cancel, make(chan *sarama.ConsumerMessage), make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- consumer.Consume(ctx, []string{topic}, one) }()
	var received []record
	for !atEnds(next, ends) {
		select {
		case message := <-one.messages:
			next[message.Partition] = message.Offset + 1
			received = append(received, record{
				message.Partition, message.Offset, string(message.Key), text(message.Value),
				string(message.Headers[0].Value),
			})
		case err := <-ended:
			return nil, nil, err
		}
	}
	close(one.read)
	select {
	case err = <-ended:
	case <-time.After(limit):
	}
	if err != nil {
		return nil, nil, err
	}
	if err := consumer.Close(); err != nil {
		return nil, nil, err
	}
	admin, err := sarama.NewClusterAdmin(s.bootstrap, s.config)
	if err != nil {
		return nil, nil, err
	}
	defer admin.Close()
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1}})
	if err != nil {
		return nil, nil, err
	}
	return received, []int64{committed.GetBlock(topic, 0).Offset, committed.GetBlock(topic, 1).Offset}, nil
}
