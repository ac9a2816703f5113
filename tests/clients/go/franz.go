package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// franz-go: idempotent by default, cooperative-sticky groups, fetch sessions.
type franz struct{ bootstrap string }

func newFranz(bootstrap string) (client, error) { return &franz{bootstrap}, nil }

func (f *franz) fill(topic string) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	plain, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap))
	if err != nil {
		return err
	}
	defer plain.Close()
	policy := compactValue
	if _, err := kadm.NewClient(plain).CreateTopic(ctx, partitions, 1, map[string]*string{compaction: &policy}, topic); err != nil {
		return err
	}
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	for name, codec := range codecs {
		producer, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap), kgo.ProducerBatchCompression(codec))
		if err != nil {
			return err
		}
		var records []*kgo.Record
		for _, one := range batch(name) {
			records = append(records, &kgo.Record{
				Topic: topic, Key: []byte(one.Key), Value: bytesOf(one.Value),
				Headers: []kgo.RecordHeader{{Key: headerKey, Value: []byte(name)}},
			})
		}
		err = producer.ProduceSync(ctx, records...).FirstErr()
		producer.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *franz) read(topic, group string) ([]record, []int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	consumer, err := kgo.NewClient(
		kgo.SeedBrokers(f.bootstrap), kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, nil, err
	}
	defer consumer.Close()
	admin := kadm.NewClient(consumer)
	listed, err := admin.ListEndOffsets(ctx, topic)
	if err != nil {
		return nil, nil, err
	}
	next, ends := make([]int64, partitions), make([]int64, partitions)
	listed.Each(func(one kadm.ListedOffset) { ends[one.Partition] = one.Offset })
	var received []record
	for !atEnds(next, ends) {
		fetches := consumer.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, nil, err
		}
		fetches.EachRecord(func(one *kgo.Record) {
			next[one.Partition] = one.Offset + 1
			received = append(received, record{
				one.Partition, one.Offset, string(one.Key), text(one.Value), string(one.Headers[0].Value),
			})
		})
	}
	if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
		return nil, nil, err
	}
	committed, err := admin.FetchOffsets(ctx, group)
	offsets := make([]int64, partitions)
	committed.Each(func(one kadm.OffsetResponse) { offsets[one.Partition] = one.At })
	return received, offsets, err
}

// Which release the broker is taken for, as kminion and rpk tell it.
func (f *franz) guess() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	plain, err := kgo.NewClient(kgo.SeedBrokers(f.bootstrap))
	if err != nil {
		return "", err
	}
	defer plain.Close()
	answer, err := kmsg.NewPtrApiVersionsRequest().RequestWith(ctx, plain)
	if err != nil {
		return "", err
	}
	return kversion.FromApiVersionsResponse(answer).VersionGuess(), nil
}
