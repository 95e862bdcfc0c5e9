package failover_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/memory"
)

// A fault stands between a failover store and a real one.
type fault func(ctx context.Context, charges []sluice.Charge, take func() error) error

var errAway = errors.New("connection refused")

// notSent is the error of a store that knows that nothing was charged.
type notSent struct{}

func (notSent) Error() string    { return "not sent" }
func (notSent) NotCharged() bool { return true }

func refused(context.Context, []sluice.Charge, func() error) error { return errAway }
func unsent(context.Context, []sluice.Charge, func() error) error  { return notSent{} }

// frozen does not answer and charges nothing.
func frozen(ctx context.Context, _ []sluice.Charge, _ func() error) error {
	<-ctx.Done()
	return ctx.Err()
}

// deaf does not answer for an hour, whatever the context says.
func deaf(context.Context, []sluice.Charge, func() error) error {
	time.Sleep(time.Hour)
	return errAway
}

// server is a shared store that fails on demand. It counts the calls that reach it,
// those of probes apart.
type server struct {
	sluice.Store
	fault         atomic.Pointer[fault]
	calls, probes atomic.Int64
}

func newServer() *server { return &server{Store: memory.New()} }

func (s *server) set(f fault) {
	if f == nil {
		s.fault.Store(nil)
		return
	}
	s.fault.Store(&f)
}

func (s *server) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if strings.HasPrefix(charges[0].Key, "failover/") {
		s.probes.Add(1)
	} else {
		s.calls.Add(1)
	}
	take := func() error { return s.Store.Take(ctx, charges, receipts) }
	if f := s.fault.Load(); f != nil {
		return (*f)(ctx, charges, take)
	}
	return take()
}

// prompt is a server as failover needs it: its calls return when the context ends.
type prompt struct{ *server }

func (p prompt) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == 0 {
		return notSent{} // it remembers nothing
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return p.Take(ctx, charges, receipts)
}

func (prompt) Shard(string) int { return 0 }

func (prompt) Heartbeat(context.Context, string) (int, error) { return 1, nil }

// used returns what the shared store has counted under the key, by asking it alone.
func (s *server) used(t *testing.T, key string, plan *sluice.Plan) int64 {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.Store.Take(t.Context(), []sluice.Charge{{Key: key, Plan: plan}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return plan.Capacity - plan.Decide(0, r[0]).Remaining + plan.Owed(r[0])
}

// lines collects a log.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, string(p))
	return len(p), nil
}

func (l *lines) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// bubble runs f in virtual time, with a failover store over a server.
func bubble(t *testing.T, c failover.Config, f func(t *testing.T, sv *server, s *failover.Store)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		sv := newServer()
		if c.Logger == nil {
			c.Logger = quiet()
		}
		s := failover.New(prompt{sv}, c)
		defer s.Close()
		f(t, sv, s)
	})
}

func plan(t testing.TB, limit string, a sluice.Algorithm) *sluice.Plan {
	t.Helper()
	l, err := sluice.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	l.Algorithm = a
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// take asks for one unit of one key.
func take(t testing.TB, s sluice.Store, key string, p *sluice.Plan, on sluice.OnError) sluice.Receipt {
	t.Helper()
	return charge(t, s, sluice.Charge{Key: key, Plan: p, Cost: 1, OnError: on})[0]
}

func charge(t testing.TB, s sluice.Store, charges ...sluice.Charge) []sluice.Receipt {
	t.Helper()
	receipts := make([]sluice.Receipt, len(charges))
	if err := s.Take(context.Background(), charges, receipts); err != nil {
		t.Fatalf("Take: %v", err)
	}
	return receipts
}

// cut makes the store notice that its server is away.
func cut(t testing.TB, sv *server, s *failover.Store, f fault) {
	t.Helper()
	sv.set(f)
	p := plan(t, "1/second", sluice.TokenBucket)
	for range 1000 {
		if s.Status().Degraded() {
			return
		}
		take(t, s, "cut", p, sluice.Deny)
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the circuit does not open")
}

// mend lets the server answer, and waits until it is used again and all is settled.
func mend(t testing.TB, sv *server, s *failover.Store) {
	t.Helper()
	sv.set(nil)
	for range 10000 {
		if st := s.Status(); !st.Degraded() && st.Owing == 0 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the server is not used again")
}

func logTo(l *lines) *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }
