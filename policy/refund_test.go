package policy

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

func TestDelayAndRefund(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(&recorder{Store: memory.New()}, parse(t, `
rules:
  - {name: all, limit: 100/day}
  - {name: queue, key: [client_ip], limit: 1/second burst 4, algorithm: leaky_bucket}
  - {name: closed, match: /closed, limit: 1/day, cost: {header: C, max: 2}}
  - {name: shadow, limit: 3/day, shadow: true}`))
		var last Decision
		for i := range 4 {
			last = e.Decide(t.Context(), get("/"))
			if want := time.Duration(i) * time.Second; !last.Allowed || last.Delay != want {
				t.Fatalf("request %d: %+v", i, last)
			}
		}
		full := e.Decide(t.Context(), get("/"))
		if full.Allowed || full.Delay != 0 || full.RetryAfter != time.Second || said(full) != "all:96 queue:refused shadow:refused" {
			t.Errorf("the queue is full: %s %+v", said(full), full)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		e.Refund(ctx, last)
		again := e.Decide(t.Context(), get("/"))
		// The turn is free again. The other rules have counted a request.
		if again.Delay != last.Delay || said(again) != "all:95 queue:0 shadow:refused" {
			t.Errorf("after the refund: %s, delay %v", said(again), again.Delay)
		}
		// Nothing is given back of a refusal.
		e.Refund(t.Context(), full)
		if d := e.Decide(t.Context(), get("/")); d.Allowed {
			t.Errorf("a refusal was given back: %s", said(d))
		}
		// The keys of a decision are its own: other decisions have been made since.
		time.Sleep(10 * time.Second)
		e.Decide(t.Context(), get("/"))
		mine := e.Decide(t.Context(), get("/"))
		for i := range 50 {
			e.Decide(t.Context(), request("GET", "/", fmt.Sprintf("198.51.100.%d", i)))
		}
		e.Refund(t.Context(), mine)
		d := e.Decide(t.Context(), get("/"))
		if d.Delay != mine.Delay {
			t.Errorf("another queue got the turn: %s", said(d))
		}
		// A place that there would have been is no turn to wait for.
		third := request("GET", "/closed", "203.0.113.1", "C: 2")
		for third.Path = range strings.FieldsSeq("/ / /closed") {
			d = e.Decide(t.Context(), third)
		}
		if d.Allowed || !d.Results[1].Allowed || d.Delay != 0 || d.Results[1].Delay != 0 {
			t.Errorf("a refused request has a turn: %+v", d)
		}
	})
}

// Leaving a queue lifts no other limit: not that of the window that has begun since, and
// not that of a shorter queue, where the request has had its turn.
func TestRefundLiftsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewEngine(memory.New(), parse(t, `
rules:
  - {name: window, match: /window, limit: 5/minute, algorithm: fixed_window}
  - {name: short, match: /short, limit: 1/second burst 2, algorithm: leaky_bucket}
  - {name: trial, limit: 1/hour burst 100, algorithm: leaky_bucket, shadow: true}
  - {name: long, key: [header:K], limit: 1/hour burst 10, algorithm: leaky_bucket}`))
		var held []Decision
		for _, path := range []string{"/window", "/window", "/window", "/short", "/short"} {
			held = append(held, e.Decide(t.Context(), get(path, "K: a")))
		}
		time.Sleep(time.Minute)
		for i, path := range []string{"/window", "/window", "/window", "/window", "/window", "/short", "/short"} {
			if d := e.Decide(t.Context(), get(path, fmt.Sprintf("K: %d", i))); !d.Allowed {
				t.Fatalf("%s: %s", path, said(d))
			}
		}
		for _, d := range held {
			e.Refund(t.Context(), d)
		}
		for _, path := range []string{"/window", "/short"} {
			if d := e.Decide(t.Context(), get(path, "K: b")); d.Allowed {
				t.Errorf("a place in the other queue has lifted %s: %s", path, said(d))
			}
		}
		// The first had its turn at once. Those of the others are free, of all that is not over.
		for i, want := range []time.Duration{1, 2, 3, 4, 5} {
			d := e.Decide(t.Context(), get("/", "K: a"))
			if want = want*time.Hour - time.Minute; i == 4 {
				want = 5*time.Hour - time.Minute
			}
			if d.Delay != want {
				t.Errorf("after all have left, %d waits for %v, want %v", i, d.Delay, want)
			}
		}
	})
}

// What a subject has in a queue is not given back, for later turns have been given. A reset empties the queue,
// and nothing is left of turns that were given up.
func TestSubjectOfQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, "rules: [{name: queue, limit: 1/second burst 4, algorithm: leaky_bucket}]")
		var last Decision
		for range 4 {
			last = pass(t, e, "/")
		}
		e.Refund(t.Context(), last)
		s := subject(t, e, "queue", nil)
		if r, err := s.Peek(t.Context()); err != nil || r[0].Delay != last.Delay {
			t.Errorf("the turn that was given up is not told: %+v, %v", r, err)
		}
		if _, err := s.Refund(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "Reset empties it") {
			t.Errorf("a refund: %v", err)
		}
		back := get("/")
		back.Mode = GiveBack
		if d := e.Decide(t.Context(), back); d.Results[0].Cost != 0 || d.Results[0].Remaining != 0 {
			t.Errorf("given back: %+v", d)
		}
		if err := s.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if d := pass(t, e, "/"); d.Delay != time.Duration(i)*time.Second {
				t.Errorf("after the reset, %d waits for %v", i, d.Delay)
			}
		}
	})
}
