package redisstore

import (
	"context"
	"fmt"
	"sync"

	"github.com/redis/rueidis"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// GatherFor is how long refunds are gathered before they are published.
const GatherFor = gatherFor

// TimedStore is a Store with a time set by the test. Its keys do not expire. Its deny cache uses the same time.
type TimedStore struct {
	*Store
	mu     sync.Mutex
	now    int64
	calls  int
	Spared int // number of Takes answered without the server
	Joined int // number of requests decided together with an earlier identical one
}

func Timed(s *Store) *TimedStore { return &TimedStore{Store: s} }

// TakeAt takes at now, in microseconds since the Unix epoch.
func (s *TimedStore) TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s.spare(now, charges, receipts, true) {
		return nil
	}
	return s.TakeAllAt(ctx, now, [][]sluice.Charge{charges}, [][]sluice.Receipt{receipts})
}

// TakeLooseAt is TakeAt, but the receipt of a log that is not full may be inexact.
func (s *TimedStore) TakeLooseAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if s.spare(now, charges, receipts, false) {
		return nil
	}
	return s.TakeAllAt(ctx, now, [][]sluice.Charge{charges}, [][]sluice.Receipt{receipts})
}

// spare answers from the deny cache, and reports whether it could.
func (s *TimedStore) spare(now int64, charges []sluice.Charge, receipts []sluice.Receipt, exact bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now < s.now && s.denyCache.table.Load() != nil { // the clock of a real process never goes back
		s.denyCache.table.Store(new([cacheSets]cacheSet)) // not nil, because a message may arrive at the same time
	}
	s.now = now
	if sluice.CheckCharges(charges, receipts) != nil || s.denyCache.table.Load() == nil || !s.denyCache.answerAt(now, charges, receipts) {
		return false
	}
	for i := range charges {
		p, r := charges[i].Plan, receipts[i]
		if exact && (p.Kernel == kernel.InFlight || p.Kernel.Log() && r.Used > 0 && r.Wait == 0) {
			return false
		}
	}
	s.Spared++
	return true
}

// TakeAllAt runs several Takes at now, in one call of the script.
func (s *TimedStore) TakeAllAt(ctx context.Context, now int64, charges [][]sluice.Charge, receipts [][]sluice.Receipt) error {
	return s.takeAll(ctx, now, charges, receipts, fmt.Sprint(now))
}

// TakeAll runs several Takes in one call of the script, by the server's clock.
func (s *TimedStore) TakeAll(ctx context.Context, charges [][]sluice.Charge, receipts [][]sluice.Receipt) error {
	return s.takeAll(ctx, 0, charges, receipts)
}

func (s *TimedStore) takeAll(ctx context.Context, now int64, charges [][]sluice.Charge, receipts [][]sluice.Receipt, timeArg ...string) error {
	for _, err := range s.takeEach(ctx, now, charges, receipts, timeArg...) {
		if err != nil {
			return err
		}
	}
	return nil
}

// TakeEachAt is TakeAllAt, but returns the error of each Take.
func (s *TimedStore) TakeEachAt(ctx context.Context, now int64, charges [][]sluice.Charge, receipts [][]sluice.Receipt) []error {
	return s.takeEach(ctx, now, charges, receipts, fmt.Sprint(now))
}

func (s *TimedStore) takeEach(ctx context.Context, now int64, charges [][]sluice.Charge, receipts [][]sluice.Receipt, timeArg ...string) []error {
	c := &scriptCall{ids: make(map[string]uint16), siblings: &s.siblings}
	for i := range charges {
		if err := sluice.CheckCharges(charges[i], receipts[i]); err != nil {
			return []error{err}
		}
		c.requests = append(c.requests, s.request(charges[i], false))
	}
	c.pack()
	do := func(words ...string) (string, error) {
		b := s.client.B().Arbitrary(words...).Args(fmt.Sprint(len(c.keys)))
		return s.client.Do(ctx, b.Keys(c.keys...).Args(string(c.arg)).Args(timeArg...).Build()).ToString()
	}
	reply, err := do("EVALSHA", s.hash) // shorter than the text of the script
	if e, ok := rueidis.IsRedisErr(err); ok && e.IsNoScript() {
		reply, err = do("EVAL", script)
	}
	if err != nil {
		return []error{err}
	}
	if err := c.unpack(reply); err != nil {
		return []error{err}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	errs := make([]error, len(charges))
	for i, r := range c.requests {
		if errs[i] = r.receipts(receipts[i]); errs[i] == nil {
			s.denyCache.note(cacheEntry{place: s.calls, sent: now, back: now}, false, charges[i], receipts[i], r.oldest)
		}
		s.calls++
		if r.index > 0 {
			s.Joined++
		}
		s.requests.Put(r)
	}
	return errs
}

// InFlight reports whether calls are in flight.
func (s *Store) InFlight() bool {
	s.batcher.mu.Lock()
	defer s.batcher.mu.Unlock()
	return len(s.batcher.out) > 0
}

// Name returns the name of a state in Redis.
func Name(s *Store, key string, p *sluice.Plan) string {
	return string(s.names.append(nil, &sluice.Charge{Key: key, Plan: p}))
}

// Workers returns the number of workers that are waited for, and of those given up as lost.
func (s *Store) Workers() (expected, lost int) {
	s.batcher.mu.Lock()
	defer s.batcher.mu.Unlock()
	return s.batcher.workers, s.batcher.lost
}
