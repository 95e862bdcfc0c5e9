package policy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
)

// waiting is a request that has a turn in the queue.
type waiting struct {
	id        string
	engine    *Engine
	decisions []Decision // of its parts
	turn      time.Time
	cost      int64
}

// turnsInUse has the turns in use, which must be as far apart as the limit requires.
type turnsInUse struct {
	*testing.T
	each time.Duration // time of a unit
	all  []*waiting
}

func (u *turnsInUse) add(w *waiting) {
	for _, other := range u.all {
		first, last := other, w
		if w.turn.Before(other.turn) {
			first, last = w, other
		}
		if apart := last.turn.Sub(first.turn); apart < time.Duration(first.cost)*u.each {
			u.Fatalf("at %v: %d units have a turn at %v, %d units %v later", time.Now().UTC(), first.cost, first.turn.UTC(), last.cost, apart)
		}
	}
	u.all = append(u.all, w)
}

// No turn is given twice, although requests leave the queue, are decided alone, in lists and together, and are repeated
// at other engines.
func TestQueueTurns(t *testing.T) {
	t.Parallel()
	r := dice{rand.New(rand.NewPCG(seed.Of(t), 5))}
	tally := make(map[string]int)
	for engines := range 4 {
		synctest.Test(t, func(t *testing.T) {
			p := parse(t, `
rules:
  - {name: window, match: [/window], limit: 9/second, algorithm: fixed_window}
  - {name: queue, limit: 20/second burst 60, algorithm: leaky_bucket, cost: {header: Cost, max: 4}}
  - {name: slow, match: [/slow], key: [client_ip], limit: 3/second burst 9, algorithm: leaky_bucket}
  - {name: body, match: [/body], key: [body:name], limit: 9/day}`)
			u := &turnsInUse{T: t, each: time.Second / 20}
			store, all := memory.New(), []*Engine(nil)
			for range engines + 1 {
				all = append(all, NewEngine(store, p))
			}
			for step := range 1500 {
				askQueue(u, r, all, tally, step)
				for i := 0; i < len(u.all); i++ {
					w := u.all[i]
					if d := &w.decisions[0]; time.Now().After(w.turn) || d.Delay == 0 || !r.one(40) {
						continue
					}
					for _, d := range w.decisions {
						w.engine.Refund(context.Background(), d)
					}
					tally["left"]++
					u.all = slices.Delete(u.all, i, i+1)
					i--
				}
				time.Sleep(time.Duration(r.Int64N(int64(30*time.Millisecond))) / 1000 * 1000)
				u.all = slices.DeleteFunc(u.all, func(w *waiting) bool { return time.Since(w.turn) > time.Minute })
			}
		})
	}
	for _, what := range []string{"passed", "left", "alone", "in a list", "together", "repeated", "in its turn", "in another turn", "refused"} {
		if tally[what] < 20 {
			t.Errorf("premise: %d are %s", tally[what], what)
		}
	}
	t.Log(tally)
}

// askQueue decides about some requests at one of the engines, and may repeat them at another one.
func askQueue(u *turnsInUse, r dice, engines []*Engine, tally map[string]int, step int) {
	e := pick(r, engines...)
	make1 := func() *Request {
		req := request("POST", pick(r, "/", "/", "/window", "/slow", "/body"), fmt.Sprint("192.0.2.", r.IntN(3)), "Cost: "+pick(r, "1", "1", "2", "4"))
		req.Body = func(int64) ([]byte, error) { return []byte("name=bob"), nil }
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		return req
	}
	reqs := []*Request{make1()}
	how := pick(r, "alone", "in a list", "together")
	for how != "alone" && len(reqs) < 3 {
		reqs = append(reqs, make1())
	}
	if r.one(3) {
		reqs[0].ID = fmt.Sprint("id", step)
	}
	ask := func(e *Engine) []Decision {
		ds := make([]Decision, len(reqs))
		switch how {
		case "alone":
			e.DecideInto(context.Background(), reqs[0], &ds[0])
		case "in a list":
			e.DecideEach(context.Background(), reqs, ds)
		default:
			if !e.DecideTogether(context.Background(), reqs, ds) {
				return nil
			}
		}
		return ds
	}
	note := func(e *Engine, ds []Decision, was []*waiting) (now []*waiting) {
		for i, d := range ds {
			at := slices.IndexFunc(d.Results, func(r Result) bool { return r.Rule == "queue" })
			if !d.Allowed || at < 0 {
				tally["refused"]++
				continue
			}
			q := &d.Results[at]
			w := &waiting{reqs[0].ID, e, []Decision{d}, time.UnixMicro(d.Now).Add(q.Delay), q.Cost}
			if how == "together" && i > 0 {
				w = now[0]
				if w.cost += q.Cost; !w.turn.Equal(time.UnixMicro(d.Now).Add(q.Delay)) {
					u.Errorf("the parts of a request have turns at %v and in %v", w.turn, q.Delay)
				}
				w.decisions = append(w.decisions, d)
				continue
			}
			now = append(now, w)
		}
		for _, w := range now {
			if own := slices.IndexFunc(was, func(b *waiting) bool { return b.turn.Equal(w.turn) }); w.decisions[0].Repeated && own >= 0 {
				tally["in its turn"]++
				continue
			} else if w.decisions[0].Repeated {
				tally["in another turn"]++
			}
			u.add(w)
			tally["passed"]++
		}
		return now
	}
	tally[how]++
	first := note(e, ask(e), nil)
	if reqs[0].ID == "" || len(first) == 0 || how == "in a list" {
		return
	}
	if r.one(2) {
		time.Sleep(time.Until(first[0].turn) / 2)
	}
	tally["repeated"]++
	again := pick(r, e, e, pick(r, engines...))
	note(again, ask(again), first)
}
