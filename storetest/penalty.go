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
			t.Fatalf("above the limit: %+v, want a denial until %d", r, end)
		}
		s.one(t.Name(), p, sluice.All)
		for range 3 {
			if r, ok := s.all(limit, penalty); ok || !r[0].Fits || r[1].Fits || r[1].Tick != end || r[1].Used != 1 {
				t.Fatalf("while the penalty lasts: %+v; want a charge that fits the limit, and a denial by the penalty until %d", r, end)
			}
		}
		expectUsed(t, s, limit, 0)
		if r, _ := s.all(peek); !r[0].Fits || r[0].Tick != end {
			t.Errorf("a peek at the penalty: %+v, want the end %d", r, end)
		}
		if r, ok := s.all(penalty); ok || r[0].Tick != end {
			t.Errorf("the charge of the penalty alone: %+v, want a denial until %d", r, end)
		}
		s.all(lift)
		for range 3 {
			if r, ok := s.all(limit, penalty); !ok || r[1].Tick != 0 || r[1].Used != 0 {
				t.Fatalf("after a reset of the penalty: %+v", r)
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
	innocent("a charge that fits in a Take that another key denies", limit, full, penalty)
	expectUsed(t, s, limit, 0)
	s.all(limit)
	innocent("exceeding a limit behind the lock", penalty, limit)
	look := penalty
	look.Cost = 0
	innocent("exceeding a limit with a peek at the lock", limit, look)
	innocent("exceeding a limit without the lock", limit)
	costly := limit
	costly.Key += "/costly"
	costly.Cost = 2
	guilty := penalty
	guilty.Key = costly.Key
	if r, _ := s.all(costly, guilty); r[1].Fits || r[1].Used != 1 {
		t.Errorf("a cost that never fits is no offence: %+v", r)
	}

	// There are two offences: one by mine, with other charges between its limit and its lock, and one by other,
	// with a lock that is a shadow.
	shadow := penalty
	shadow.Shadow, shadow.Key = true, other
	if r, ok := s.all(limit, full, shadow, penalty); ok || r[3].Fits || r[2].Fits || r[2].Tick != r[2].Now+time.Hour.Microseconds() {
		t.Errorf("two offences in a Take: %+v", r)
	}
	free := sluice.Charge{Key: t.Name() + "/free", Plan: p, Cost: 1}
	if r, ok := s.all(free, shadow); !ok || r[1].Fits {
		t.Errorf("a lock in shadow mode during a penalty: %+v; want a receipt that does not fit, and an admitted Take", r)
	}
}

func testConcurrentPenalty(t *testing.T, s takes) { Penalty(t, s.store) }

// Penalty lets 64 callers exceed a limit of ten at the same time, through stores that count together. Ten charges
// pass, one penalty starts, and all callers get the same end. While the penalty lasts, no charge passes, even if
// the limit has room.
func Penalty(t *testing.T, stores ...sluice.Store) {
	lock := hour(t)
	each(t, still(10), func(t *testing.T, p *sluice.Plan) {
		var admitted atomic.Int64
		var ends sync.Map
		request := func(caller, times int) {
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
				group.Go(func() { request(caller, times) })
			}
			group.Wait()
		}
		all(5)
		if n := admitted.Load(); n != 10 {
			t.Errorf("%d Takes were admitted, want 10", n)
		}
		takes{t, stores[0]}.one(t.Name(), p, sluice.All)
		all(5)
		if n := admitted.Load(); n != 10 {
			t.Errorf("%d Takes passed while the penalty lasts", n-10)
		}
		count := 0
		ends.Range(func(end, penalties any) bool {
			count++
			if end.(int64) == 0 || penalties.(int64) != 1 {
				t.Errorf("a receipt has %d penalties, the last until %d; want one", penalties, end)
			}
			return true
		})
		if count != 1 {
			t.Errorf("the receipts have %d different ends of the penalty, want one", count)
		}
	})
}
