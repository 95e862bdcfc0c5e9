package storetest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
)

// hour returns a penalty that does not end while a test runs.
func hour(t testing.TB) *sluice.Plan {
	t.Helper()
	p, err := sluice.Penalty{First: time.Hour, Factor: 2, Most: 24 * time.Hour}.Plan()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func testPenalty(t *testing.T, s takes) {
	lock := hour(t)
	each(t, still(3), func(t *testing.T, p *sluice.Plan) {
		s := takes{t, s.store}
		limit, penalty := sluice.Charge{Key: t.Name(), Plan: p, Cost: 1}, sluice.Charge{Key: t.Name(), Plan: lock, Cost: 1}
		peek, lift := penalty, penalty
		peek.Cost, lift.Cost = 0, sluice.All
		for range 3 {
			if r, ok := s.all(limit, penalty); !ok || r[1].Tick != 0 {
				t.Fatalf("within the limit: %+v", r)
			}
		}
		r, ok := s.all(limit, penalty)
		end := r[1].Now + time.Hour.Microseconds()
		if ok || r[0].Fits || r[1].Fits || r[1].Used != 1 || r[1].Tick != end {
			t.Fatalf("exceeded: %+v, want a refusal until %d", r, end)
		}
		s.one(t.Name(), p, sluice.All)
		for range 3 {
			if r, ok := s.all(limit, penalty); ok || !r[0].Fits || r[1].Fits || r[1].Tick != end || r[1].Used != 1 {
				t.Fatalf("while it lasts: %+v, want that the limit fits, and the same end %d", r, end)
			}
		}
		expectUsed(t, s, limit, 0)
		if r, _ := s.all(peek); !r[0].Fits || r[0].Tick != end {
			t.Errorf("looked at: %+v, want the end %d", r, end)
		}
		if r, ok := s.all(penalty); ok || r[0].Tick != end {
			t.Errorf("alone: %+v, want a refusal until %d", r, end)
		}
		s.all(lift)
		for range 3 {
			if r, ok := s.all(limit, penalty); !ok || r[1].Tick != 0 || r[1].Used != 0 {
				t.Fatalf("lifted: %+v", r)
			}
		}
	})
}

// testPenaltyOfOthers checks that a charge is an offence only if it exceeds a limit that precedes the lock and has its
// key, and that the penalty of one key does not affect others.
func testPenaltyOfOthers(t *testing.T, s takes) {
	lock, p := hour(t), plan(t, still(1))
	mine, other := t.Name()+"/mine", t.Name()+"/other"
	limit, full := sluice.Charge{Key: mine, Plan: p, Cost: 1}, sluice.Charge{Key: other, Plan: p, Cost: 1}
	penalty := sluice.Charge{Key: mine, Plan: lock, Cost: 1}
	s.all(full)
	innocent := func(what string, charges ...sluice.Charge) {
		t.Helper()
		s.all(charges...)
		if r, _ := s.all(sluice.Charge{Key: mine, Plan: lock}); r[0].Tick != 0 {
			t.Errorf("%s is an offence: %+v", what, r)
		}
	}
	innocent("that another refuses", limit, full, penalty)
	expectUsed(t, s, limit, 0)
	s.all(limit)
	innocent("to exceed a limit behind the lock", penalty, limit)
	look := penalty
	look.Cost = 0
	innocent("to look", limit, look)
	innocent("to exceed a limit without the lock", limit)
	costly := limit
	costly.Key += "/costly"
	costly.Cost = 2
	guilty := penalty
	guilty.Key = costly.Key
	if r, _ := s.all(costly, guilty); r[1].Fits || r[1].Used != 1 {
		t.Errorf("to ask for what never fits is no offence: %+v", r)
	}

	// An offence with other charges in between, with another denial, and one by a shadow.
	shadow := penalty
	shadow.Shadow, shadow.Key = true, other
	if r, ok := s.all(limit, full, shadow, penalty); ok || r[3].Fits || r[2].Fits || r[2].Tick != r[2].Now+time.Hour.Microseconds() {
		t.Errorf("two offences in a Take: %+v", r)
	}
	free := sluice.Charge{Key: t.Name() + "/free", Plan: p, Cost: 1}
	if r, ok := s.all(free, shadow); !ok || r[1].Fits {
		t.Errorf("a shadow in force: %+v, want that it tells, and refuses nothing", r)
	}
}

func testConcurrentPenalty(t *testing.T, s takes) { Penalty(t, s.store) }

// Penalty lets 64 callers exceed a limit of ten at the same time, over stores that count together. Ten charges
// pass, one penalty starts, and all callers get the same end. While it lasts, no charge passes, even if the limit
// has room.
func Penalty(t *testing.T, stores ...sluice.Store) {
	lock := hour(t)
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		var admitted atomic.Int64
		var ends sync.Map
		ask := func(caller, times int) {
			charges := []sluice.Charge{{Key: t.Name(), Plan: p, Cost: 1}, {Key: t.Name(), Plan: lock, Cost: 1}}
			receipts := make([]sluice.Receipt, 2)
			for range times {
				if err := stores[caller%len(stores)].Take(t.Context(), charges, receipts); err != nil {
					t.Error(err)
					return
				}
				if sluice.Admitted(charges, receipts) {
					admitted.Add(1)
				} else {
					ends.Store(receipts[1].Tick, receipts[1].Used)
				}
			}
		}
		all := func(times int) {
			var group sync.WaitGroup
			for caller := range 64 {
				group.Go(func() { ask(caller, times) })
			}
			group.Wait()
		}
		all(5)
		if n := admitted.Load(); n != 10 {
			t.Errorf("%d were admitted, want 10", n)
		}
		takes{t, stores[0]}.one(t.Name(), p, sluice.All)
		all(5)
		if n := admitted.Load(); n != 10 {
			t.Errorf("%d passed while the penalty lasts", n-10)
		}
		told := 0
		ends.Range(func(end, penalties any) bool {
			told++
			if end.(int64) == 0 || penalties.(int64) != 1 {
				t.Errorf("somebody is told of %d penalties, the last until %d", penalties, end)
			}
			return true
		})
		if told != 1 {
			t.Errorf("%d ends are told, want one", told)
		}
	})
}
