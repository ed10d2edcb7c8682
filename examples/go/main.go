// Command warehouse is a consumer of Kafka that handles every order once.
//
// Kafka delivers again what was not committed when a consumer died or lost a partition, and
// producers send twice. dedupd says which copy is to be handled, and by whom.
package main

import (
	"context"
	"flag"
	"log"
	"os/signal"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

//go:generate buf generate

// One batch is the work between two commits. A rebalance waits for it.
const maxBatch = 100

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "where Kafka is")
	topic := flag.String("topic", "orders", "the topic to consume; what cannot be handled goes to TOPIC.dead")
	group := flag.String("group", "warehouse", "the consumer group")
	session := flag.Duration("session", 10*time.Second, "Kafka takes a consumer for dead that is silent for so long")
	dedupd := flag.String("dedupd", "127.0.0.1:50061", "where dedupd is; unix:///path for a socket")
	out := flag.String("out", ".", "a folder with one folder for each warehouse")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	dedup, err := connect(*dedupd, "orders")
	if err != nil {
		log.Fatal(err)
	}
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(*brokers),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(*topic),
		kgo.SessionTimeout(*session),
		kgo.HeartbeatInterval(*session/3),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),    // We commit what is settled, and nothing else.
		kgo.BlockRebalanceOnPoll(), // Partitions stay ours until AllowRebalance.
	)
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.CloseAllowingRebalance()

	c := consumer{dedup: dedup, kafka: kafka, deadLetters: *topic + ".dead", out: *out}
	if err := c.run(ctx); err != nil && ctx.Err() == nil {
		log.Fatal(err) // Nothing of the last batch is committed: it will be delivered again.
	}
}

func (c *consumer) run(ctx context.Context) error {
	for {
		fetches := c.kafka.PollRecords(ctx, maxBatch)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fetches.EachError(func(topic string, partition int32, err error) {
			log.Printf("%s/%d: %v", topic, partition, err) // The client tries again by itself.
		})
		records := fetches.Records()
		if err := c.handle(ctx, records); err != nil {
			return err
		}
		// Last of all: a commit that is lost only costs copies, which dedupd keeps away.
		if err := c.kafka.CommitRecords(ctx, records...); err != nil {
			log.Printf("not committed, to be delivered again: %v", err)
		}
		c.kafka.AllowRebalance()
	}
}
