package failover_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// asked is what a store has told of the decisions that it asked the shared one for.
type asked struct {
	mu     sync.Mutex
	n      int
	failed map[redisstore.Kind]int
}

func (a *asked) note(took time.Duration, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.n++; took <= 0 {
		panic(took)
	}
	if e, ok := errors.AsType[*redisstore.Error](err); ok {
		a.failed[e.Kind]++
	}
}

func (a *asked) decisions() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n
}

// Each decision that the server makes is told, alone or in a list, and none that is remembered; an
// error with what the server has said.
func TestAsked(t *testing.T) {
	server := redistest.Start(t)
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	a := &asked{failed: map[redisstore.Kind]int{}}
	s := failover.New(shared, failover.Config{Instances: 1, Deadline: time.Minute, Logger: quiet(), Asked: a.note})
	defer shared.Close()
	defer s.Close()
	p := plan(t, "10/day", sluice.TokenBucket)
	byServer := 0
	for range 500 {
		if take(t, s, "k", p, sluice.Deny).Origin == sluice.ByStore {
			byServer++
		}
	}
	if got := a.decisions(); got != byServer || byServer < 11 || byServer == 500 {
		t.Errorf("of 500 decisions the server made %d, and %d were told", byServer, got)
	}
	calls := many(p, 30)
	s.TakeEach(t.Context(), calls)
	for _, c := range calls {
		if c.Err == nil && c.Receipts[0].Origin == sluice.ByStore {
			byServer++
		}
	}
	if got := a.decisions(); got != byServer {
		t.Errorf("with a list the server made %d decisions, and %d were told", byServer, got)
	}

	server.Do("CONFIG", "SET", "maxmemory", "1")
	calls = many(plan(t, "20/day", sluice.GCRA), 3)
	s.TakeEach(t.Context(), calls)
	take(t, s, "full", p, sluice.Deny)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed[redisstore.OutOfMemory] != 4 || len(a.failed) != 1 || a.n != byServer+4 {
		t.Errorf("after four failures %+v", a.failed)
	}
}
