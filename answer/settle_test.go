package answer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// A request with a turn in a second is allowed at that time. If something prevents this, Settle denies the request
// and has the turn given back, with a context that has not ended.
func TestSettle(t *testing.T) {
	gone := errors.New("the client has left")
	for name, test := range map[string]struct {
		deadline, leaves time.Duration // zero means none, and never
		drain            func() error
		passes           bool
		after            time.Duration
	}{
		"turn":            {passes: true, after: time.Second},
		"slow body":       {drain: func() error { time.Sleep(400 * time.Millisecond); return nil }, passes: true, after: time.Second},
		"late body":       {drain: func() error { time.Sleep(3 * time.Second); return nil }, passes: true, after: 3 * time.Second},
		"no body":         {drain: func() error { return gone }},
		"leaves":          {leaves: 300 * time.Millisecond, after: 300 * time.Millisecond},
		"far deadline":    {deadline: 2 * time.Second, passes: true, after: time.Second},
		"near deadline":   {deadline: 999 * time.Millisecond},
		"no wait to read": {deadline: 999 * time.Millisecond, drain: func() error { time.Sleep(time.Hour); return nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limiter := policytest.Limiter(t, memory.New(), "1/second burst 3 as leaky_bucket")
				var d policy.Decision
				Take(t.Context(), limiter, "queue", "k", 1, &d)
				Take(t.Context(), limiter, "queue", "k", 1, &d)
				ctx, cancel := context.WithCancel(t.Context())
				if test.deadline > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), test.deadline)
				}
				defer cancel()
				if test.leaves > 0 {
					time.AfterFunc(test.leaves, cancel)
				}
				begun, given := time.Now(), 0
				Settle(ctx, &d, test.drain, func(ctx context.Context) {
					given++
					if ctx.Err() != nil {
						t.Error("the context has ended")
					}
					GiveBack(limiter, "k", 1, &d)
				})
				if after := time.Since(begun); d.Allowed != test.passes || given > 1 || (given == 0) != test.passes || after != test.after {
					t.Errorf("allowed: %t after %v, given back %d times", d.Allowed, after, given)
				}
				if !test.passes && (d.Results[0].Allowed || d.RetryAfter != time.Second || d.Now != 0) {
					t.Errorf("the denial is %+v", d)
				}
			})
		})
	}
}

// Settle does not change other decisions, and does not wait for them.
func TestSettleNothing(t *testing.T) {
	for _, d := range []policy.Decision{
		{Allowed: true},
		{RetryAfter: time.Hour, Delay: time.Hour},
		{Allowed: true, Degraded: true},
	} {
		settled := d
		Settle(t.Context(), &settled, func() error { t.Error("drained"); return nil }, func(context.Context) { t.Error("given back") })
		if settled.Allowed != d.Allowed || settled.RetryAfter != d.RetryAfter || settled.Unavailable {
			t.Errorf("%+v is settled as %+v", d, settled)
		}
	}
}

// A client that leaves before the store has answered is denied, although OnError is Allow.
func TestSettleLeaver(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var d policy.Decision
	Take(ctx, policytest.Limiter(t, unavailableStore{}, "1/hour"), "a", "k", 1, &d)
	if !d.Allowed || !d.Degraded {
		t.Fatalf("before: %+v", d)
	}
	Settle(ctx, &d, nil, func(context.Context) { t.Error("given back") })
	if d.Allowed || !d.Unavailable {
		t.Errorf("after: %+v", d)
	}
}

// unavailableStore is a shared store that cannot be reached.
type unavailableStore struct{}

func (unavailableStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("connection refused")
}

func TestOutage(t *testing.T) {
	var log bytes.Buffer
	o := Outage{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	d := policy.Decision{Now: 1, Results: make([]policy.Result, 1)}
	blocked := policy.Decision{Blocked: "abusers", Results: make([]policy.Result, 1)} // decided without the store
	failed := d
	failed.Err = errors.New("connection refused")
	for _, d := range []policy.Decision{d, failed, failed, {}, blocked, failed, d, d, failed, blocked} {
		o.Note(&d)
	}
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 3 || !strings.Contains(lines[0], "refused") || !strings.Contains(lines[1], "again") || !strings.Contains(lines[2], "refused") {
		t.Errorf("%s", &log)
	}
}

// Take reuses the memory of a decision, and keeps nothing of the previous decision.
func TestTakeReuses(t *testing.T) {
	well := policytest.Limiter(t, memory.New(), "5/hour")
	unavailable := policytest.Limiter(t, unavailableStore{}, "1/hour")
	unavailable.OnError = sluice.Deny
	var d, fresh policy.Decision
	Take(t.Context(), unavailable, "other", "k", 1, &d)
	if d.Allowed || !d.Unavailable || d.Err == nil {
		t.Fatalf("the store is unavailable: %+v", d)
	}
	first := &d.Results[0]
	Take(t.Context(), well, "one", "a", 1, &d)
	Take(t.Context(), well, "one", "b", 1, &fresh)
	if &d.Results[0] != first {
		t.Error("the memory is not reused")
	}
	if d.Now, d.Results[0].Now = fresh.Now, fresh.Now; !fresh.Allowed || fresh.Results[0].Remaining != 4 || !reflect.DeepEqual(d, fresh) {
		t.Errorf("reused: %+v, fresh: %+v", d, fresh)
	}
}

// Waiting counts a request until its turn comes or its client leaves.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limiter := policytest.Limiter(t, memory.New(), "1/second burst 4 as leaky_bucket")
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		before := Waiting()
		for i := range 4 { // one at once, and the others after one, two and three seconds
			of := t.Context()
			if i == 3 {
				of = ctx
			}
			var d policy.Decision
			Take(t.Context(), limiter, "queue", "k", 1, &d)
			go Settle(of, &d, nil, func(context.Context) {})
		}
		for _, want := range []int{3, 2} {
			synctest.Wait()
			if n := Waiting() - before; n != want {
				t.Errorf("%d wait, want %d", n, want)
			}
			time.Sleep(time.Second + time.Millisecond)
		}
		leave()
		synctest.Wait()
		if n := Waiting() - before; n != 0 {
			t.Errorf("%d wait after all turns have come or clients have left", n)
		}
	})
}

// degraded is a store that marks its receipts as decided by a fallback.
type degraded struct{ *memory.Store }

func (s degraded) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := s.Store.Take(ctx, charges, receipts)
	for i := range receipts {
		receipts[i].Origin = sluice.ByLocalShare
	}
	return err
}

// A client that has left while a fallback decided is denied, and keeps no permit.
func TestInFlightLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "all", InFlight: policy.InFlight{Most: 1}}}})
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(degraded{memory.New()}, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d := e.Decide(ctx, &policy.Request{Ends: true})
		if !d.Held() {
			t.Fatalf("%+v", d)
		}
		held := d
		Settle(ctx, &d, nil, func(ctx context.Context) { e.Refund(ctx, held) })
		if d.Allowed || d.Held() {
			t.Errorf("%+v", d)
		}
		time.Sleep(kernel.PermitLasts / 2)
		if d := e.Decide(t.Context(), &policy.Request{}); !d.Allowed {
			t.Error("its permit is still taken")
		}
	})
}
