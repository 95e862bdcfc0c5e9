package failover_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// holder takes and gives back places in flight of one key.
type holder struct {
	t     *testing.T
	store sluice.Store
	plan  *sluice.Plan
	ends  map[uint64]int64 // of the places that the shared store has given, by its clock
}

func (h holder) ask(number uint64, cost int64) sluice.Receipt {
	h.t.Helper()
	var r [1]sluice.Receipt
	charges := []sluice.Charge{{Key: "k", Plan: h.plan, Place: number, Cost: cost, OnError: sluice.Local}}
	if err := h.store.Take(h.t.Context(), charges, r[:]); err != nil {
		h.t.Fatal(err)
	}
	return r[0]
}

// local asks, and fails unless a share answers, and has so many places left.
func (h holder) local(number uint64, cost int64, fits bool, left int64) {
	h.t.Helper()
	r := h.ask(number, cost)
	if n := h.plan.Decide(cost, r).Remaining; r.Fits != fits || n != left || r.Origin != sluice.ByLocalShare {
		h.t.Errorf("place %d, cost %d: fits %v, %d are left, by the %v; want %v, and %d by a share", number, cost, r.Fits, n, r.Origin, fits, left)
	}
}

// shared asks the shared store, and fails unless it answers by what it has given before.
func (h holder) shared(number uint64, cost int64) {
	h.t.Helper()
	r := h.ask(number, cost)
	for number, end := range h.ends {
		if end <= r.Now {
			delete(h.ends, number)
		}
	}
	_, held := h.ends[number]
	fits := cost < 1 || held || int64(len(h.ends)) < h.plan.Capacity
	switch {
	case cost < 0:
		delete(h.ends, number)
	case cost > 0 && fits:
		h.ends[number] = r.Now + sluice.PlaceLasts.Microseconds()
	}
	if r.Fits != fits || r.Used != int64(len(h.ends)) || r.Origin != sluice.ByStore {
		h.t.Errorf("place %d, cost %d: %+v; want fits %v, %d taken, by the store", number, cost, r, fits, len(h.ends))
	}
}

// TestPlacesWhileAway has a real server go away and come back. While it is away, who holds a place
// takes it again in a share, and what does not fit that is refused. When it is back, nothing has been
// written back, and who holds a place takes it again.
func TestPlacesWhileAway(t *testing.T) {
	t.Run("frozen", func(t *testing.T) { testPlacesWhileAway(t, false) })
	t.Run("restarted", func(t *testing.T) { testPlacesWhileAway(t, true) })
}

func testPlacesWhileAway(t *testing.T, forgets bool) {
	t.Parallel()
	server := redistest.Start(t)
	shared, err := redisstore.Open(t.Context(), server.URL())
	if err != nil {
		t.Fatal(err)
	}
	s := failover.New(shared, failover.Config{Instances: 2, Deadline: patient, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		s.Close()
		shared.Close()
	})
	p, err := sluice.NewInFlight(4)
	if err != nil {
		t.Fatal(err)
	}
	h := holder{t, s, p, map[uint64]int64{}}
	limit := sluice.Charge{Key: "limit", Plan: plan(t, "10/10d", sluice.FixedWindow), Cost: 1, OnError: sluice.Local}

	for number := range uint64(3) {
		h.shared(number+1, 1)
	}
	if forgets {
		server.Kill()
	} else {
		server.Freeze()
	}
	eventually(t, "the circuit opens", func() bool { return s.Status().Degraded() })
	h.local(99, 0, true, 2)
	h.local(1, 1, true, 1)
	h.local(1, 1, true, 1)
	h.local(2, 1, true, 0)
	h.local(3, 1, false, 0) // its request goes on, and no other begins
	h.local(4, 1, false, 0)
	h.local(1, -1, true, 1)
	h.local(1, -1, true, 1)
	h.local(5, 1, true, 0)
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), []sluice.Charge{limit}, r[:]); err != nil || r[0].Origin != sluice.ByLocalShare {
		t.Fatalf("%+v, error %v", r[0], err)
	}

	if forgets {
		server.Restart()
	} else {
		server.Thaw()
	}
	// A debt that is written back says that all would have been.
	eventually(t, "the store is back, and what a limit owes is written back", func() bool {
		err := shared.TakeWithin(t.Context(), time.Second, []sluice.Charge{{Key: limit.Key, Plan: limit.Plan}}, r[:])
		return err == nil && r[0].Used == 1 && !s.Status().Degraded()
	})
	if forgets {
		clear(h.ends)
	}
	h.shared(99, 0) // 1 was given back to nobody, and ends by itself
	for _, number := range []uint64{2, 3, 5, 6} {
		h.shared(number, 1)
	}
	h.shared(5, -1)
}
