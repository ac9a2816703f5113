// What clients written in Go make of a broker: each makes a compacted topic, produces with every codec that it
// has, reads the topic as a group up to its ends, commits, and asks what was committed.
//
//	clients franz-go|sarama|kafka-go BOOTSTRAP TOPIC GROUP [fill]
//
// Prints one JSON object: the records, and the committed offset of each partition.
//
//	clients franz-go|sarama BOOTSTRAP TOPIC GROUP move SOURCE COUNT
//
// Moves so many records from SOURCE to TOPIC in transactions, and prints nothing.
//
//	clients franz-go BOOTSTRAP - - guess
//
// Prints which release of Kafka the broker is taken for.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"
)

const (
	partitions   = 2
	perCodec     = 40
	keys         = 10
	limit        = 2 * time.Minute
	headerKey    = "codec"
	compaction   = "cleanup.policy"
	compactValue = "compact"
)

// A record as every client is given it, and gives it back.
type record struct {
	Partition int32   `json:"partition"`
	Offset    int64   `json:"offset"`
	Key       string  `json:"key"`
	Value     *string `json:"value"` // nil: a tombstone
	Codec     string  `json:"codec"` // in a header
}

type client interface {
	fill(topic string) error                                                  // make the topic, and produce
	read(topic, group string) (received []record, offsets []int64, err error) // up to the ends, and commit
}

// The records of one codec: every seventh is a tombstone.
func batch(codec string) []record {
	records := make([]record, perCodec)
	for number := range records {
		records[number] = record{Key: fmt.Sprintf("key%d", number%keys), Codec: codec}
		if number%7 != 0 {
			value := fmt.Sprintf("%s %d, and what a codec finds to pack: aaaaaaaaaaaaaaaaaaaaaaaa", codec, number)
			records[number].Value = &value
		}
	}
	return records
}

func text(value []byte) *string {
	if value == nil {
		return nil
	}
	content := string(value)
	return &content
}

func bytesOf(value *string) []byte {
	if value == nil {
		return nil
	}
	return []byte(*value)
}

// Whether the records behind these offsets are all that there are; the last record of a log always stays.
func atEnds(next, ends []int64) bool {
	for partition, end := range ends {
		if next[partition] < end {
			return false
		}
	}
	return true
}

func main() {
	log.SetFlags(0)
	if len(os.Args) < 5 {
		log.Fatal("usage: clients franz-go|sarama|kafka-go BOOTSTRAP TOPIC GROUP [fill]")
	}
	bootstrap, topic, group := os.Args[2], os.Args[3], os.Args[4]
	made := map[string]func(string) (client, error){
		"franz-go": newFranz, "sarama": newSarama, "kafka-go": newKafkaGo,
	}
	one, err := made[os.Args[1]](bootstrap)
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 5 && os.Args[5] == "move" {
		count, err := strconv.Atoi(os.Args[7])
		if err == nil {
			err = one.(mover).move(os.Args[6], topic, group, count)
		}
		if err != nil {
			log.Fatalf("move: %v", err)
		}
		return
	}
	if len(os.Args) > 5 && os.Args[5] == "guess" {
		release, err := one.(*franz).guess()
		if err != nil {
			log.Fatalf("guess: %v", err)
		}
		fmt.Println(release)
		return
	}
	if len(os.Args) > 5 {
		if err := one.fill(topic); err != nil {
			log.Fatalf("fill: %v", err)
		}
	}
	received, offsets, err := one.read(topic, group)
	if err != nil {
		log.Fatalf("read: %v", err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(map[string]any{"received": received, "committed": offsets}); err != nil {
		log.Fatal(err)
	}
}
