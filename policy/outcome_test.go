package policy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// remains returns what remains of a rule without a key.
func remains(t testing.TB, e *Engine, rule string) int64 {
	t.Helper()
	subject, err := e.Subject(rule, nil)
	if err != nil {
		t.Fatal(err)
	}
	results, err := subject.Peek(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining
}

// reset forgets what was counted for such a rule.
func reset(t testing.TB, e *Engine, rule string) {
	t.Helper()
	subject, err := e.Subject(rule, nil)
	if err == nil {
		err = subject.Reset(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pass decides about a request that has to pass.
func pass(t testing.TB, e *Engine, path string) Decision {
	t.Helper()
	d := e.Decide(t.Context(), get(path))
	if !d.Allowed {
		t.Fatalf("%s: %s", path, said(d))
	}
	return d
}

func status(n int) Outcome { return Outcome{Status: n} }

func header(n int, name, value string) Outcome {
	return Outcome{Status: n, Header: http.Header{name: {value}}}
}

func TestCount(t *testing.T) {
	for _, test := range []struct {
		count   string
		counts  []Outcome
		doesNot []Outcome
	}{
		{"{status: [401, 403]}",
			[]Outcome{{}, status(401), status(403), {Bytes: -1, Status: 401}, {Status: 200, Verdict: Counts}, header(401, "X-Uncount", "1")},
			[]Outcome{status(200), status(101), status(402), status(502), {Bytes: -1, Status: 200}, {Verdict: CountsNot}, {Status: 401, Verdict: CountsNot}}},
		{"{status: 2xx}",
			[]Outcome{{}, status(200), status(299)},
			[]Outcome{status(101), status(300), status(500), status(199)}},
		{"{status: [101, 5xx], unless_header: x-uncount}",
			[]Outcome{{}, status(101), status(500), status(599), header(500, "X-Uncount", "0"), header(500, "X-Uncount", ""), header(500, "X-Other", "1")},
			[]Outcome{status(200), status(600), header(500, "X-Uncount", "1"), header(500, "X-Uncount", " TRUE"), header(200, "X-Uncount", "no")}},
		{"{unless_header: X-Uncount}",
			[]Outcome{{}, status(200), status(404), header(200, "X-Uncount", "false"), {Header: http.Header{"X-Uncount": {"1"}}}},
			[]Outcome{header(200, "X-Uncount", "yes"), {Status: 200, Header: http.Header{"X-Uncount": {"no", "1"}}}}},
	} {
		e := engine(t, "rules: [{name: a, limit: 100/day, algorithm: fixed_window, cost: 3, count: "+test.count+"}]")
		for n, outcomes := range [][]Outcome{test.doesNot, test.counts} {
			for _, o := range outcomes {
				before := remains(t, e, "a")
				d := pass(t, e, "/")
				if !d.Unsettled() || remains(t, e, "a") != before-3 {
					t.Fatalf("%s: the request was not charged before its outcome", test.count)
				}
				e.Settle(t.Context(), d, o)
				if got, want := before-remains(t, e, "a"), int64(3*n); got != want {
					t.Errorf("%s with %+v: %d units, want %d", test.count, o, got, want)
				}
			}
		}
	}
}

// However many settle it, in whatever copy, a request is settled once. What is given back is its
// own, and nothing of a decision that waits for no outcome.
func TestSettleOnce(t *testing.T) {
	e := engine(t, `
rules:
  - {name: failures, limit: 10/day, count: {status: [401]}}
  - {name: all, limit: 10/day}
  - {name: bytes, limit: 1000/day, cost: {response_bytes: 10, estimate: 5}}`)
	held, d := pass(t, e, "/"), pass(t, e, "/")
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			mine := d
			e.Settle(t.Context(), mine, Outcome{Status: 200, Bytes: -1 + int64(i%2)*101})
		})
	}
	wg.Wait()
	e.Settle(t.Context(), d, Outcome{Status: 200, Bytes: 5000})
	e.Refund(t.Context(), d)
	if f, a, b := remains(t, e, "failures"), remains(t, e, "all"), remains(t, e, "bytes"); f != 9 || a != 8 || b != 1000-5-10 {
		t.Errorf("%d failures, %d of all, %d of bytes are left, want 9, 8 and 985", f, a, b)
	}
	e.Settle(t.Context(), held, Outcome{Status: 401, Bytes: 0})
	if f, b := remains(t, e, "failures"), remains(t, e, "bytes"); f != 9 || b != 990 {
		t.Errorf("%d failures, %d of bytes are left, want 9 and 990", f, b)
	}
	if e := engine(t, "rules: [{name: a, limit: 1/day}]"); true {
		if d := pass(t, e, "/"); d.Unsettled() {
			t.Error("a rule without an outcome waits for one")
		} else if e.Settle(t.Context(), d, status(200)); remains(t, e, "a") != 0 {
			t.Error("it was given back")
		}
	}
}

// Of guesses at the same time, wrong and right mixed, five wrong ones get through, whoever comes
// first, and no right one counts in the end.
func TestParallelGuesses(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"} {
		e := engine(t, "rules: [{name: login, limit: 5/day, algorithm: "+algorithm+", count: {status: [401]}}]")
		// Nobody has a wrong password at first.
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				for range 20 {
					if d := e.Decide(t.Context(), get("/login")); d.Allowed {
						e.Settle(t.Context(), d, status(200))
					}
				}
			})
		}
		wg.Wait()
		if n := remains(t, e, "login"); n != 5 {
			t.Fatalf("%s: %d are left after right ones only", algorithm, n)
		}
		var wrong atomic.Int64
		for i := range 64 {
			wg.Go(func() {
				for wrong.Load() < 5 {
					d := e.Decide(t.Context(), get("/login"))
					if !d.Allowed {
						continue
					}
					if i%2 == 0 {
						e.Settle(t.Context(), d, status(200))
						return
					}
					wrong.Add(1)
					e.Settle(t.Context(), d, status(401))
				}
			})
		}
		wg.Wait()
		if n := wrong.Load(); n != 5 || remains(t, e, "login") != 0 {
			t.Errorf("%s: %d wrong guesses got through, %d are left", algorithm, n, remains(t, e, "login"))
		}
	}
}

func TestCostAfter(t *testing.T) {
	const told, bytes = "{response_header: X-Cost, estimate: 4, max: 30}", "{response_bytes: 1024, estimate: 4}"
	engines := make(map[string]*Engine)
	for _, test := range []struct {
		cost string
		o    Outcome
		want int64
	}{
		{told, header(200, "X-Cost", "7"), 7},
		{told, header(200, "X-Cost", " 30 "), 30},
		{told, header(200, "X-Cost", "31"), 30},
		{told, header(200, "X-Cost", "99999999999999999999999"), 30},
		{told, header(200, "X-Cost", "4"), 4},
		{told, header(200, "X-Cost", "1"), 1},
		{told, header(200, "X-Cost", "0"), 0},
		{told, header(200, "X-Cost", "-1"), 4},
		{told, header(200, "X-Cost", "1.5"), 4},
		{told, header(200, "X-Cost", ""), 4},
		{told, Outcome{Status: 200, Header: http.Header{"X-Cost": {"3", "9", "x"}}}, 9},
		{told, status(200), 4},
		{told, Outcome{}, 4},
		{told, Outcome{Status: 200, Cost: 90}, 30},
		{told, Outcome{Status: 200, Cost: -1}, 0},
		{bytes, Outcome{Status: 200}, 0},
		{bytes, Outcome{Status: 200, Bytes: 1}, 1},
		{bytes, Outcome{Status: 200, Bytes: 1024}, 1},
		{bytes, Outcome{Status: 200, Bytes: 1025}, 2},
		{bytes, Outcome{Status: 200, Bytes: 50 << 10}, 50},
		{bytes, Outcome{Status: 200, Bytes: 1 << 62}, 100},
		{bytes, Outcome{Status: 101}, 4},
		{bytes, Outcome{}, 4},
		{bytes, Outcome{Bytes: 2000}, 2},
		{bytes, Outcome{Status: 200, Bytes: 2000, Cost: 9}, 9},
	} {
		for _, a := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"} {
			e := engines[a+test.cost]
			if e == nil {
				e = engine(t, "rules: [{name: a, limit: 100/day, algorithm: "+a+", cost: "+test.cost+"}]")
				engines[a+test.cost] = e
			}
			reset(t, e, "a")
			d := pass(t, e, "/")
			if n := remains(t, e, "a"); n != 96 {
				t.Fatalf("%s %s: %d are left after the estimate", a, test.cost, n)
			}
			open := test.o
			open.Bytes, open.Header, open.Cost = -1, nil, 0
			if open.Status != 101 {
				e.Settle(t.Context(), d, open)
			}
			if n := remains(t, e, "a"); n != 96 {
				t.Fatalf("%s %s: %d are left before anybody knows", a, test.cost, n)
			}
			e.Settle(t.Context(), d, test.o)
			if n := remains(t, e, "a"); n != 100-test.want {
				t.Errorf("%s %s with %+v: %d units, want %d", a, test.cost, test.o, 100-n, test.want)
			}
		}
	}
}

// What no longer fits uses up what is left, whatever others do meanwhile, and the next waits.
func TestBrim(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 1000/day, algorithm: sliding_window_log, cost: {response_header: X-Cost, estimate: 10, max: 500}}]")
	var wg sync.WaitGroup
	var held []Decision
	for range 8 {
		held = append(held, pass(t, e, "/"))
	}
	for _, d := range held {
		wg.Go(func() { e.Settle(t.Context(), d, header(200, "X-Cost", "500")) })
	}
	wg.Wait()
	if n := remains(t, e, "a"); n != 0 {
		t.Errorf("%d are left", n)
	}
	if d := e.Decide(t.Context(), get("/")); d.Allowed || d.RetryAfter < 23*time.Hour {
		t.Errorf("the next request need not wait: %s, %v", said(d), d.RetryAfter)
	}
}

// Whatever is decided and settled in whatever order, the count is the sum of what each request
// took in the end, and nothing is lost.
func TestSettleSums(t *testing.T) {
	seed := seed.Of(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"} {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, "rules: [{name: a, limit: 2000/day, algorithm: "+algorithm+", shadow: true, count: {status: [401]}, cost: {response_header: X-Cost, estimate: 3, max: 100}}]")
			var held []Decision
			used := int64(0)
			for i := range 3000 {
				if len(held) == 0 || random.IntN(2) == 0 {
					fits := used+3 <= 2000
					d := e.Decide(t.Context(), get("/"))
					if d.Results[0].Allowed != fits || d.Unsettled() != fits {
						t.Fatalf("seed %d, %s, %d: with %d used: %s, unsettled %v", seed, algorithm, i, used, said(d), d.Unsettled())
					}
					if fits {
						used, held = used+3, append(held, d)
					}
					continue
				}
				n := random.IntN(len(held))
				d, cost := held[n], int64(random.IntN(12))
				held[n] = held[len(held)-1]
				held = held[:len(held)-1]
				o := header([]int{200, 401}[random.IntN(2)], "X-Cost", fmt.Sprint(cost))
				if o.Status != 401 {
					cost = 0
				}
				e.Settle(t.Context(), d, o)
				used += cost - 3
				if got := remains(t, e, "a"); got != max(0, 2000-used) {
					t.Fatalf("seed %d, %s, %d: %d units are left where %d of 2000 are used", seed, algorithm, i, got, used)
				}
			}
		})
	}
}

// An outcome that comes when what was taken does not count any more lifts nothing: what others
// have taken since stays.
func TestLateOutcome(t *testing.T) {
	for _, algorithm := range []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"} {
		synctest.Test(t, func(t *testing.T) {
			for _, inTime := range []bool{true, false} {
				e := engine(t, "rules: [{name: a, limit: 5/minute, algorithm: "+algorithm+", count: {status: [401]}}]")
				time.Sleep(time.Until(time.Now().Truncate(2 * time.Minute).Add(2 * time.Minute)))
				var slow []Decision
				for range 5 {
					slow = append(slow, pass(t, e, "/"))
				}
				if inTime {
					time.Sleep(time.Second)
				} else {
					time.Sleep(61 * time.Second)
				}
				for !inTime && e.Decide(t.Context(), get("/")).Allowed {
				}
				for _, d := range slow {
					e.Settle(t.Context(), d, status(200))
				}
				want := int64(0)
				if inTime {
					want = 5
				}
				if n := remains(t, e, "a"); n != want {
					t.Errorf("%s, in time %v: %d are left, want %d", algorithm, inTime, n, want)
				}
			}
		})
	}
}

// A place in a queue that is given back takes with it what the outcome would have settled: the
// request has not got through.
func TestRefundSettles(t *testing.T) {
	e := engine(t, `
rules:
  - {name: queue, limit: 1/hour burst 9, algorithm: leaky_bucket}
  - {name: failures, limit: 5/day, count: {status: [401]}}
  - {name: bytes, limit: 50/day, cost: {response_bytes: 10, estimate: 5}}
  - {name: all, limit: 50/day}`)
	pass(t, e, "/")
	d := pass(t, e, "/")
	e.Refund(t.Context(), d)
	e.Settle(t.Context(), d, Outcome{Status: 401, Bytes: 400})
	if f, b, a := remains(t, e, "failures"), remains(t, e, "bytes"), remains(t, e, "all"); f != 4 || b != 45 || a != 48 {
		t.Errorf("%d, %d and %d are left, want 4, 45 and 48", f, b, a)
	}
}

// A request that is refused as malformed is not free: it has no outcome to wait for.
func TestMalformedHasNoOutcome(t *testing.T) {
	e := engine(t, `
rules:
  - {name: failures, limit: 5/day, count: {status: [401]}}
  - {name: key, key: [header:K], missing: refuse, limit: 5/day}`)
	d := e.Decide(t.Context(), get("/"))
	e.Settle(t.Context(), d, status(200))
	if d.Missing == "" || d.Unsettled() || remains(t, e, "failures") != 4 {
		t.Errorf("%+v, %d are left", d, remains(t, e, "failures"))
	}
}

// A shadow that had no room has nothing to give back.
func TestShadowSettles(t *testing.T) {
	e := engine(t, "rules: [{name: a, limit: 2/day, shadow: true, count: {status: [401]}}]")
	one, two, three := pass(t, e, "/"), pass(t, e, "/"), pass(t, e, "/")
	if three.Unsettled() {
		t.Error("what was not taken is to be settled")
	}
	e.Settle(t.Context(), three, status(200))
	e.Settle(t.Context(), two, status(401))
	e.Settle(t.Context(), one, status(200))
	if n := remains(t, e, "a"); n != 1 {
		t.Errorf("%d are left, want 1", n)
	}
}

// failing is a store that fails from some time on.
type failing struct {
	sluice.Store
	err atomic.Pointer[error]
	ctx atomic.Bool // a Take had a context that had ended, or had no end
}

func (f *failing) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if _, bounded := ctx.Deadline(); ctx.Err() != nil || !bounded {
		f.ctx.Store(true)
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return f.Store.Take(ctx, charges, receipts)
}

// Without the store nothing is given back, and nothing else happens.
func TestSettleWithoutStore(t *testing.T) {
	f := &failing{Store: memory.New()}
	e := NewEngine(f, parse(t, "rules: [{name: a, limit: 5/day, on_error: allow, count: {status: [401]}}]"))
	d, left2 := pass(t, e, "/"), pass(t, e, "/")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	f.ctx.Store(false)
	e.Settle(ended, left2, status(200))
	if f.ctx.Load() {
		t.Error("settling is not bounded, or ends with the client")
	}
	away := errors.New("away")
	f.err.Store(&away)
	e.Settle(t.Context(), d, status(200))
	if d := e.Decide(t.Context(), get("/")); !d.Allowed || d.Unsettled() {
		t.Errorf("what was not counted is to be settled: %+v", d)
	}
	f.err.Store(nil)
	e.Settle(t.Context(), d, status(200))
	if n := remains(t, e, "a"); n != 4 {
		t.Errorf("%d are left, want 4", n)
	}
}

// A decision is used again while the outcome of the last one is awaited.
func TestSettleAfterReuse(t *testing.T) {
	e := engine(t, "rules: [{name: a, key: [header:K], limit: 5/day, count: {status: [401]}}]")
	var d Decision
	e.DecideInto(t.Context(), get("/", "K: a"), &d)
	first := d
	for i := range 20 {
		e.DecideInto(t.Context(), get("/", fmt.Sprintf("K: %d", i)), &d)
	}
	e.Settle(t.Context(), first, status(200))
	e.DecideInto(t.Context(), get("/", "K: a"), &d)
	if said(d) != "a:4" {
		t.Errorf("%s, want a:4", said(d))
	}
}
