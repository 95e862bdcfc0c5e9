package sluice_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/turns"
	"github.com/sluicehq/sluice/memory"
)

// queueTest is a queue in one process. Four callers got turns at 0, 1, 2 and 3 s, and the turn at 1 s was given up.
type queueTest struct {
	*testing.T
	sluice.Turns
	store *spy
	queue *sluice.Plan
	day   *sluice.Plan // a second limit of each Take
}

func newQueueTest(t *testing.T) *queueTest {
	q := &queueTest{T: t, store: newSpy()}
	q.queue, q.day = plantest.Plan(t, "1/second burst 4 as leaky_bucket"), plantest.Plan(t, "7/day as fixed_window")
	var second turns.Turn
	for i := range 4 {
		turn, at := q.ask()
		if at != time.Duration(i)*time.Second {
			t.Fatalf("premise: caller %d has a turn in %v", i, at)
		}
		if i == 1 {
			second = turn
		}
	}
	q.Leave(second)
	return q
}

// ask takes a turn and a unit of the daily limit. It returns the turn and the time until it, or -1 if the Take was
// denied.
func (q *queueTest) ask() (turns.Turn, time.Duration) {
	q.Helper()
	charges := []sluice.Charge{{Key: "k", Plan: q.day, Cost: 1}, {Key: "k", Plan: q.queue, Cost: 1}}
	receipts := make([]sluice.Receipt, 2)
	if err := q.Take(q.Context(), q.store, charges, receipts); err != nil {
		q.Fatal(err)
	}
	if !sluice.Admitted(charges, receipts) {
		return turns.Turn{}, -1
	}
	turn, _ := charges[1].Turn(&receipts[1])
	return turn, q.queue.Decide(1, receipts[1]).Delay
}

func (q *queueTest) expect(what string, want time.Duration) {
	q.Helper()
	if _, at := q.ask(); at != want {
		q.Errorf("%s: a turn in %v, want %v", what, at, want)
	}
}

func (q *queueTest) used(p *sluice.Plan) int64 {
	return p.Capacity - p.Decide(0, plantest.One(q.T, q.store.Store, "k", p, 0)).Remaining
}

// TestTurns checks what happens to a turn that was given up.
func TestTurns(t *testing.T) {
	for name, run := range map[string]func(q *queueTest){
		"taken": func(q *queueTest) {
			q.expect("the turn that was given up", time.Second)
			q.expect("the queue is full", -1)
		},
		"passed": func(q *queueTest) {
			time.Sleep(1500 * time.Millisecond)
			q.expect("the turn that was given up has passed", 2500*time.Millisecond)
		},
		"passes meanwhile": func(q *queueTest) {
			q.store.before = func([]sluice.Charge) error { time.Sleep(1200 * time.Millisecond); q.store.before = nil; return nil }
			q.expect("the turn passes before the store answers", 2800*time.Millisecond)
			if used := q.used(q.day); used != 5 {
				q.Errorf("%d units of the daily limit are used, want 5", used)
			}
		},
		"passes meanwhile in a full queue": func(q *queueTest) {
			other := sluice.Charge{Key: "k", Plan: q.queue, Cost: 1}
			calls := 0
			q.store.before = func([]sluice.Charge) error {
				if calls++; calls == 1 {
					time.Sleep(1200 * time.Millisecond)
					return q.store.Store.Take(q.Context(), []sluice.Charge{other}, make([]sluice.Receipt, 1))
				}
				return nil
			}
			q.expect("the turn has passed, and others have filled the queue", -1)
			if used := q.used(q.day); used != 4 || calls != 3 {
				q.Errorf("%d units of the daily limit are used after %d calls, want 4 after 3: the unit of the denied Take is given back", used, calls)
			}
		},
		"refused by another": func(q *queueTest) {
			plantest.One(q.T, q.store, "k", q.day, 3)
			q.expect("the daily limit is used up", -1)
			plantest.One(q.T, q.store, "k", q.day, -3)
			q.expect("the turn is still there", time.Second)
		},
		"an error": func(q *queueTest) {
			down := errors.New("down")
			q.store.before = func([]sluice.Charge) error { return down }
			charges := []sluice.Charge{{Key: "k", Plan: q.queue, Cost: 1}}
			if err := q.Take(q.Context(), q.store, charges, make([]sluice.Receipt, 1)); err != down || charges[0].Cost != 1 {
				q.Errorf("%v, cost %d", err, charges[0].Cost)
			}
			q.store.before = nil
			q.expect("the turn is still there", time.Second)
		},
		"reset here": func(q *queueTest) {
			q.reset()
			q.Forget("k", q.queue)
			q.expect("the first after a reset", 0)
			q.expect("the second", time.Second)
			q.expect("the third", 2*time.Second)
		},
		"reset elsewhere": func(q *queueTest) {
			q.reset()
			q.expect("the first after a reset", 0)
			q.expect("the second", time.Second)
			q.expect("the third", 2*time.Second)
		},
		"of a longer queue": func(q *queueTest) {
			l := q.queue.Limit
			l.Burst = 1 // a shorter queue, as of another tier
			q.queue = plantest.Of(q.T, l)
			q.expect("the turn lies beyond the end of the shorter queue", -1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(newQueueTest(t)) })
		})
	}
}

func (q *queueTest) reset() {
	plantest.One(q.T, q.store, "k", q.queue, sluice.All)
}

// The number of kept turns is bounded. The newest turn is kept in place of turns of another queue.
func TestTurnsBound(t *testing.T) {
	store, turns := memory.New(), new(sluice.Turns)
	queue := plantest.Plan(t, "1/hour burst 4 as leaky_bucket")
	const most, keys = 1 << 16, 1<<16 + 4000
	receipt := make([]sluice.Receipt, 1)
	look := func(key string) bool {
		c := []sluice.Charge{{Key: key, Plan: queue}}
		if err := store.Take(t.Context(), c, receipt); err != nil {
			t.Fatal(err)
		}
		return turns.Offer(&c[0], 1, &receipt[0])
	}
	for i := range keys {
		c := []sluice.Charge{{Key: fmt.Sprint(i), Plan: queue, Cost: 2}}
		for range 2 {
			if err := store.Take(t.Context(), c, receipt); err != nil {
				t.Fatal(err)
			}
		}
		turn, _ := c[0].Turn(&receipt[0])
		if turns.Leave(turn); i%1000 == 0 && !look(c[0].Key) {
			t.Fatalf("the new turn of key %d is not kept", i)
		}
	}
	kept := 0
	for i := range keys {
		if look(fmt.Sprint(i)) {
			kept++
		}
	}
	if kept > most || kept < most*9/10 {
		t.Errorf("%d turns are kept of %d", kept, keys)
	}
}
