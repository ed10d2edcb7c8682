package main

import (
	"context"
	"encoding/json"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	pb "example.com/warehouse/dedupd/v1"
)

// After so many failures an order goes to the dead-letter topic.
const maxFailures = 3

type consumer struct {
	dedup       *dedup
	kafka       *kgo.Client
	deadLetters string
	out         string
}

// delivery is a record on its way, with its order; the zero order if it cannot be read.
type delivery struct {
	record   *kgo.Record
	order    order
	failures int
}

// handle returns once every record is done with: handled here, or known to be elsewhere, or dead.
// What has to wait is asked about again, and is overtaken meanwhile by what came later: if the
// order within a key matters, let everything behind it with its key wait as well.
func (c *consumer) handle(ctx context.Context, records []*kgo.Record) error {
	waiting := make([]*delivery, len(records))
	for i, record := range records {
		waiting[i] = &delivery{record: record}
		// An order that cannot be read has no id, and dedupd says what to do with it.
		_ = json.Unmarshal(record.Value, &waiting[i].order)
	}
	for len(waiting) > 0 {
		again, pause, err := c.pass(ctx, waiting)
		if err != nil {
			return err
		}
		if len(again) > 0 {
			if err := sleep(ctx, pause); err != nil {
				return err
			}
		}
		waiting = again
	}
	return nil
}

// pass asks about all that wait and does what the verdicts say. It returns those to ask about
// again, and when.
func (c *consumer) pass(ctx context.Context, waiting []*delivery) ([]*delivery, time.Duration, error) {
	events := make([]*pb.Event, len(waiting))
	for i, d := range waiting {
		events[i] = &pb.Event{Identity: &pb.Event_Keyed{Keyed: &pb.Keyed{EventId: d.order.ID}}}
	}
	asked := time.Now()
	response, err := c.dedup.admit(ctx, events)
	if err != nil {
		return nil, 0, err
	}
	leases := keep(c.dedup, response, asked)
	defer leases.end()

	var again []*delivery
	pause := 100 * time.Millisecond
	for i, verdict := range response.Verdicts {
		d := waiting[i]
		isDone := true
		switch verdict.Decision {
		case pb.Decision_DECISION_ADMIT:
			isDone, err = c.admitted(ctx, d, verdict.Claim, leases)
		case pb.Decision_DECISION_SUPPRESS:
		case pb.Decision_DECISION_DEAD_LETTER:
			err = c.deadLetter(ctx, d, verdict.Reason.String()+": "+verdict.Detail)
		default: // RETRY, and what this program does not know yet
			isDone = false
			pause = max(pause, verdict.RetryAfter.AsDuration())
		}
		if err != nil {
			return nil, 0, err
		}
		if !isDone {
			again = append(again, d)
		}
	}
	return again, pause, nil
}

// admitted does the work and settles the claim. It says whether the order is done with.
func (c *consumer) admitted(ctx context.Context, d *delivery, claim []byte, leases *leases) (bool, error) {
	err := pick(ctx, d.order)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	if !leases.held(claim) {
		return false, nil // Too late: another may be at it. Ask again.
	}
	if err == nil {
		err = ship(c.out, d.order)
	}
	if err == nil {
		c.confirm(d, claim, leases)
		return true, nil
	}

	log.Printf("%s: %v", d.order.ID, err)
	d.failures++
	isDead := d.failures >= maxFailures
	if isDead {
		if err := c.deadLetter(ctx, d, err.Error()); err != nil {
			return false, err
		}
	}
	// After the dead letter is written: from now on a copy is admitted.
	c.dedup.release(claim)
	leases.settled(claim)
	return isDead, nil
}

// confirm tries until it is confirmed or the lease is over: the order is shipped, and nothing else
// keeps its copies away.
func (c *consumer) confirm(d *delivery, claim []byte, leases *leases) {
	if len(claim) == 0 {
		return // Admitted without the store: there is nothing to settle.
	}
	defer leases.settled(claim)
	for {
		outcome := c.dedup.confirm(claim)
		switch outcome {
		case pb.SettleOutcome_SETTLE_OUTCOME_APPLIED, pb.SettleOutcome_SETTLE_OUTCOME_ALREADY_APPLIED:
			return
		case pb.SettleOutcome_SETTLE_OUTCOME_STORE_UNAVAILABLE:
			if leases.held(claim) {
				time.Sleep(100 * time.Millisecond)
				continue
			}
		}
		log.Printf("%s: not confirmed (%v): it may be shipped twice", d.order.ID, outcome)
		return
	}
}

func (c *consumer) deadLetter(ctx context.Context, d *delivery, why string) error {
	letter := &kgo.Record{
		Topic:   c.deadLetters,
		Key:     d.record.Key,
		Value:   d.record.Value,
		Headers: append(d.record.Headers, kgo.RecordHeader{Key: "dead-letter-reason", Value: []byte(why)}),
	}
	return c.kafka.ProduceSync(ctx, letter).FirstErr()
}
