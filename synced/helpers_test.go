package synced_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/synced"
)

// mood is the behavior of a link.
type mood int

const (
	well   mood = iota
	unsent      // calls fail at once, and have certainly not arrived
	lost        // calls do not arrive, but their errors leave that open
	mute        // calls arrive, but their answers do not
)

// server is a store behind links with delays, which fail on command. It counts the units that are reported to it.
type server struct {
	*faultstore.Store
	mu      sync.Mutex
	mood    mood
	trip    time.Duration // maximum round trip
	random  *rand.Rand
	arrived int64 // units that were counted
	lost    int64 // units in reports that did not arrive
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

// received returns the number of units that have arrived, and of units that were lost.
func (s *server) received() (arrived, lost int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived, s.lost
}

// link returns the behavior of the link for a call, and its delays in both directions.
func (s *server) link() (m mood, there, back time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	half := int64(s.trip)/2 + 1
	return s.mood, time.Duration(s.random.Int64N(half)), time.Duration(s.random.Int64N(half))
}

func (s *server) call(ctx context.Context, c faultstore.Call) (err error) {
	m, there, back := s.link()
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
	return faultstore.Plan(t, limit+" "+a.String())
}

func steady(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 2)) }

// fleet is a number of processes that share a server.
type fleet struct{ stores []*synced.Store }

func newFleet(n int, sv synced.Shared) *fleet {
	f := &fleet{}
	for range n {
		f.stores = append(f.stores, synced.New(sv))
	}
	for range 2 { // after the second round, each process knows all others
		for i, s := range f.stores {
			if _, err := s.Heartbeat(context.Background(), fmt.Sprint("instance ", i)); err != nil {
				panic(err)
			}
		}
	}
	return f
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

func notCharged(err error) bool {
	e, ok := errors.AsType[interface {
		error
		NotCharged() bool
	}](err)
	return ok && e.NotCharged()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
