package main

import (
	"context"
	"time"

	"github.com/segmentio/kafka-go"
)

// segmentio's kafka-go: early versions of every call, its own idea of groups.
type kafkaGo struct {
	bootstrap string
	client    *kafka.Client
}

func newKafkaGo(bootstrap string) (client, error) {
	return &kafkaGo{bootstrap, &kafka.Client{Addr: kafka.TCP(bootstrap), Timeout: limit}}, nil
}

func (k *kafkaGo) fill(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	made, err := k.client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{
		Topic: topic, NumPartitions: partitions, ReplicationFactor: 1,
		ConfigEntries: []kafka.ConfigEntry{{ConfigName: compaction, ConfigValue: compactValue}},
	}}})
	if err != nil {
		return err
	}
	if made.Errors[topic] != nil {
		return made.Errors[topic]
	}
	for _, codec := range []kafka.Compression{0, kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd} {
		name := codec.String()
		writer := &kafka.Writer{
			Addr: kafka.TCP(k.bootstrap), Topic: topic, Compression: codec, Balancer: &kafka.Hash{},
			RequiredAcks: kafka.RequireAll, BatchTimeout: 5 * time.Millisecond,
		}
		var messages []kafka.Message
		for _, one := range batch(name) {
			messages = append(messages, kafka.Message{
				Key: []byte(one.Key), Value: bytesOf(one.Value),
				Headers: []kafka.Header{{Key: headerKey, Value: []byte(name)}},
			})
		}
		if err := writer.WriteMessages(ctx, messages...); err != nil {
			return err
		}
		if err := writer.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (k *kafkaGo) read(topic, group string) ([]record, []int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	asked := map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0), kafka.LastOffsetOf(1)}}
	listed, err := k.client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: asked})
	if err != nil {
		return nil, nil, err
	}
	next, ends := make([]int64, partitions), make([]int64, partitions)
	for _, one := range listed.Topics[topic] {
		ends[one.Partition] = one.LastOffset
	}
	reader := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{k.bootstrap}, GroupID: group, Topic: topic})
	defer reader.Close()
	var received []record
	for !atEnds(next, ends) {
		message, err := reader.FetchMessage(ctx)
		if err != nil {
			return nil, nil, err
		}
		next[message.Partition] = message.Offset + 1
		received = append(received, record{
			int32(message.Partition), message.Offset, string(message.Key), text(message.Value),
			string(message.Headers[0].Value),
		})
		if err := reader.CommitMessages(ctx, message); err != nil {
			return nil, nil, err
		}
	}
	committed, err := k.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{
		GroupID: group, Topics: map[string][]int{topic: {0, 1}},
	})
	if err != nil {
		return nil, nil, err
	}
	offsets := make([]int64, partitions)
	for _, one := range committed.Topics[topic] {
		offsets[one.Partition] = one.CommittedOffset
	}
	return received, offsets, nil
}
