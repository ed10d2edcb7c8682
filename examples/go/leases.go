package main

import (
	"sync"
	"time"

	pb "example.com/warehouse/dedupd/v1"
)

// leases are the claims of a batch that are not settled yet, each with the time until which it is
// surely ours: counted from before the call that took or renewed it, by our own clock.
type leases struct {
	dedup  *dedup
	length time.Duration // 0: claims need no renewing

	mu    sync.Mutex
	until map[string]time.Time

	stop chan struct{}
	done sync.WaitGroup
}

// keep renews the claims, most of which wait for the work on those before them.
func keep(dedup *dedup, response *pb.AdmitResponse, asked time.Time) *leases {
	l := &leases{
		dedup:  dedup,
		length: response.Lease.AsDuration(),
		until:  make(map[string]time.Time),
		stop:   make(chan struct{}),
	}
	for _, verdict := range response.Verdicts {
		// Without a token there is nothing to renew: the store did not take part.
		if len(verdict.Claim) > 0 {
			l.until[string(verdict.Claim)] = asked.Add(l.length)
		}
	}
	if l.length > 0 && len(l.until) > 0 {
		l.done.Go(l.renewing)
	}
	return l
}

func (l *leases) renewing() {
	ticks := time.NewTicker(l.length / 3)
	defer ticks.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-ticks.C:
			l.renew()
		}
	}
}

func (l *leases) renew() {
	claims := l.unsettled()
	if len(claims) == 0 {
		return
	}
	asked := time.Now()
	outcomes := l.dedup.renew(claims)
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, outcome := range outcomes {
		claim := string(claims[i])
		if _, isUnsettled := l.until[claim]; !isUnsettled {
			continue
		}
		switch outcome {
		case pb.SettleOutcome_SETTLE_OUTCOME_APPLIED:
			l.until[claim] = asked.Add(l.length)
		case pb.SettleOutcome_SETTLE_OUTCOME_NOT_HELD:
			l.until[claim] = time.Time{}
		}
	}
}

func (l *leases) unsettled() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	var claims [][]byte
	for claim := range l.until {
		claims = append(claims, []byte(claim))
	}
	return claims
}

// held says whether nobody else can have been admitted since. Ask just before the effect: the
// process may have been frozen meanwhile.
func (l *leases) held(claim []byte) bool {
	if l.length == 0 || len(claim) == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Before(l.until[string(claim)])
}

func (l *leases) settled(claim []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, string(claim))
}

// end releases what was not settled, so that others need not wait for the leases.
func (l *leases) end() {
	close(l.stop)
	l.done.Wait()
	if claims := l.unsettled(); len(claims) > 0 {
		l.dedup.release(claims...)
	}
}
