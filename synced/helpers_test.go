package synced_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/synced"
)

// mood is how a link behaves.
type mood int

const (
	well   mood = iota
	unsent      // calls fail at once, and have certainly not arrived
	lost        // calls do not arrive, and their errors do not say so
	mute        // calls arrive, and their answers do not
)

// server is a store behind links that take their time, and fail on command. It counts the units that it is told of.
type server struct {
	*faultstore.Store
	mu      sync.Mutex
	mood    mood
	trip    time.Duration // at the most, there and back
	random  *rand.Rand
	arrived int64 // units that were counted
	lost    int64 // units that were to be counted, and of which nothing is known
	// telling, if it is set, is how long a call that tells of something takes there and back.
	telling [2]time.Duration
}

func newServer(backing sluice.Store, trip time.Duration, random *rand.Rand) *server {
	s := &server{Store: faultstore.New(backing), trip: trip, random: random}
	s.Set(s.call)
	return s
}

func (s *server) become(m mood) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mood = m
}

// slow makes calls that tell of something take so long there and back.
func (s *server) slow(there, back time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.telling = [2]time.Duration{there, back}
}

// heard returns how many units have arrived, and how many were lost.
func (s *server) heard() (arrived, lost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived, s.lost
}

// link returns how a call fares.
func (s *server) link(c faultstore.Call) (m mood, there, back time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Charges[0].Cost != 0 && s.telling != [2]time.Duration{} {
		return s.mood, s.telling[0], s.telling[1]
	}
	half := int64(s.trip)/2 + 1
	return s.mood, time.Duration(s.random.Int64N(half)), time.Duration(s.random.Int64N(half))
}

func (s *server) call(ctx context.Context, c faultstore.Call) (err error) {
	m, there, back := s.link(c)
	if m == unsent {
		return faultstore.NotSent{}
	}
	time.Sleep(there)
	if m != lost {
		err = c.Take()
	}
	units := int64(0)
	for i := range c.Charges {
		if err == nil && (m == lost || c.Receipts[i].Fits || c.Charges[i].Owe) {
			units += c.Charges[i].Cost - c.Receipts[i].Cut
		}
	}
	s.mu.Lock()
	if m == lost {
		s.lost += units
	} else {
		s.arrived += units
	}
	s.mu.Unlock()
	if m != well {
		return faultstore.Frozen(ctx, c)
	}
	time.Sleep(back)
	return err
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

// slow is a limit by which nothing drains while a test runs: the clock of a bubble begins at midnight.
const slow = "1000/day"

func still(t testing.TB, limit string) *sluice.Plan { return plan(t, limit, sluice.FixedWindow) }

func steady(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// fleet is some processes that share a server.
type fleet struct {
	*server
	stores []*synced.Store
}

func newFleet(n int, sv *server) *fleet {
	f := &fleet{server: sv}
	for range n {
		f.stores = append(f.stores, synced.New(sv))
	}
	for range 2 { // so that each has heard of all
		for i, s := range f.stores {
			if _, err := s.Heartbeat(context.Background(), fmt.Sprint("instance ", i)); err != nil {
				panic(err)
			}
		}
	}
	return f
}

// near runs f in virtual time, with some processes whose server is not far.
func near(t *testing.T, processes int, f func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fl := newFleet(processes, newServer(memory.New(), 0, steady(1)))
		defer fl.close()
		f(t, fl)
	})
}

func (f *fleet) close() {
	for _, s := range f.stores {
		s.Close()
	}
}

func (f *fleet) try(process int, p *sluice.Plan, cost int64) (sluice.Receipt, error) {
	charges := [1]sluice.Charge{{Key: "k", Plan: p, Cost: cost, Consistency: sluice.Synced}}
	var r [1]sluice.Receipt
	err := f.stores[process].TakeWithin(context.Background(), 50*time.Millisecond, charges[:], r[:])
	return r[0], err
}

// take has a process take, and fails unless that fits or not.
func (f *fleet) take(t testing.TB, process int, p *sluice.Plan, cost int64, fits bool) sluice.Receipt {
	t.Helper()
	r, err := f.try(process, p, cost)
	if err != nil || r.Fits != fits {
		t.Fatalf("a cost of %d: %+v, %v; want fits %v", cost, r, err, fits)
	}
	return r
}

// rounds waits until so much has been told as often, and a moment more.
func rounds(n int) {
	time.Sleep(time.Duration(n)*synced.Every + time.Millisecond)
	synctest.Wait()
}

func notCharged(err error) bool {
	e, ok := errors.AsType[interface {
		error
		NotCharged() bool
	}](err)
	return ok && e.NotCharged()
}
