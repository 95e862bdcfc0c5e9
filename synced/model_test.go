package synced_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/synced"
)

// mood is how a link behaves.
type mood int

const (
	well   mood = iota
	unsent      // calls fail at once, and have certainly not arrived
	lost        // calls do not arrive, and nobody says so
	mute        // calls arrive, and their answers do not
)

// server is a store behind links that take their time, and fail when they are told to.
type server struct {
	sluice.Store
	mu      sync.Mutex
	mood    mood
	trip    time.Duration // at the most, there and back
	random  *rand.Rand
	calls   int
	ids     map[string]bool // of instances
	arrived int64           // units that were counted
	lost    int64           // units that were to be counted, and of which nobody knows
	// telling, if it is set, is how long a call that tells of something takes there and back.
	telling [2]time.Duration
}

func newServer(trip time.Duration, random *rand.Rand) *server {
	return &server{Store: memory.New(), trip: trip, random: random}
}

type notSent struct{ error }

func (notSent) NotCharged() bool { return true }

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

// count returns how many calls there were.
func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls
}

// counted returns how many units have arrived.
func (s *server) counted() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.arrived
}

func (s *server) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait <= 0 {
		return notSent{errors.New("nothing is remembered")}
	}
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s.mu.Lock()
	s.calls++
	mood, there, back := s.mood, time.Duration(s.random.Int64N(int64(s.trip)/2+1)), time.Duration(s.random.Int64N(int64(s.trip)/2+1))
	if charges[0].Cost != 0 && s.telling != [2]time.Duration{} {
		there, back = s.telling[0], s.telling[1]
	}
	s.mu.Unlock()
	if mood == unsent {
		return notSent{errors.New("the connection is refused")}
	}
	time.Sleep(there)
	var err error
	if mood != lost {
		err = s.Take(context.WithoutCancel(ctx), charges, receipts)
	}
	units := int64(0)
	for i := range charges {
		if err == nil && (mood == lost || receipts[i].Fits || charges[i].Owe) {
			units += charges[i].Cost - receipts[i].Cut
		}
	}
	s.mu.Lock()
	if mood == lost {
		s.lost += units
	} else {
		s.arrived += units
	}
	s.mu.Unlock()
	if mood != well {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(back)
	return err
}

func (s *server) Shard(string) int { return 0 }

func (s *server) Heartbeat(_ context.Context, id string) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids == nil {
		s.ids = map[string]bool{}
	}
	s.ids[id] = true
	return len(s.ids), nil
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

// admission is what a process has let pass.
type admission struct {
	process int
	at      int64 // µs, of the true clock
	counted int64 // µs, by the receipt
	units   int64
}

// history is what processes have let pass of one key.
type history struct {
	mu  sync.Mutex
	all []admission
}

func (h *history) add(a admission) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

// excess replays what has passed by the definition of the limit, and returns the most units by which
// it was above the limit, and by which it was above the limit and all that the other processes had let
// pass within unseen before. It knows nothing of states: rational time, and one pass over all that has
// passed for each that passes.
func (h *history) excess(p *sluice.Plan, unseen time.Duration) (most, blind int64) {
	slices.SortStableFunc(h.all, func(a, b admission) int { return int(h.time(p, a) - h.time(p, b)) })
	most, blind = -1<<62, -1<<62
	level, last := int64(0), int64(0)
	for i, a := range h.all {
		at := h.time(p, a)
		var over int64 // in units, rounded up
		switch p.Kernel {
		case sluice.Meter: // of which a unit is its period, and a µs drains the count
			period := p.Limit.Period.Microseconds()
			level = max(0, level-(at-last)*p.Limit.Count) + a.units*period
			over, last = -((p.Limit.Burst*period - level) / period), at
			if level > p.Limit.Burst*period {
				over = (level - p.Limit.Burst*period + period - 1) / period
			}
		default:
			length := p.Limit.Period.Microseconds()
			n := at / length
			var this, before int64
			for _, b := range h.all[:i+1] {
				switch h.time(p, b) / length {
				case n:
					this += b.units
				case n - 1:
					before += b.units
				}
			}
			weight := int64(0)
			if p.Limit.Algorithm == sluice.SlidingWindowCounter {
				weight = before * ((n+1)*length - at)
			}
			over = (this*length + weight - p.Limit.Count*length) / length
		}
		others := int64(0)
		for _, b := range h.all[:i] {
			if b.process != a.process && b.at > a.at-unseen.Microseconds() {
				others += b.units
			}
		}
		most, blind = max(most, over), max(blind, over-others)
	}
	return most, blind
}

// time returns when it counts. Which window that is in is what the process takes it for.
func (h *history) time(p *sluice.Plan, a admission) int64 {
	if p.Kernel == sluice.Window {
		return a.counted
	}
	return a.at
}

// fleet is some processes that share a server.
type fleet struct {
	server *server
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

func (f *fleet) close() {
	for _, s := range f.stores {
		s.Close()
	}
}

func (f *fleet) take(process int, key string, p *sluice.Plan, cost int64) (sluice.Receipt, error) {
	charges := [1]sluice.Charge{{Key: key, Plan: p, Cost: cost, Consistency: sluice.Synced}}
	var r [1]sluice.Receipt
	err := f.stores[process].TakeWithin(context.Background(), 50*time.Millisecond, charges[:], r[:])
	return r[0], err
}

// ask is a process that is asked for a whole burst as soon as all have heard of the key, and then in
// spurts: at some rate for some time, and then not at all.
func (f *fleet) ask(process int, p *sluice.Plan, random *rand.Rand, until time.Time, h *history) {
	take := func(cost int64) {
		if r, err := f.take(process, "k", p, cost); err == nil && r.Fits && cost > 0 {
			h.add(admission{process, time.Now().UnixMicro(), r.Now, cost})
		}
	}
	take(0)
	time.Sleep(20 * time.Millisecond)
	for range p.Capacity {
		take(1)
	}
	rate := float64(p.Limit.Count) / p.Limit.Period.Seconds()
	for time.Now().Before(until) {
		gap := time.Duration(float64(time.Second) / (rate * []float64{0.2, 0.5, 1, 3, 30}[random.IntN(5)]))
		for end := time.Now().Add(time.Duration(random.Int64N(int64(2 * time.Second)))); time.Now().Before(end); {
			cost := int64(1)
			if random.IntN(4) == 0 {
				cost += random.Int64N(3)
			}
			take(cost)
			time.Sleep(time.Duration(random.Int64N(int64(2*gap)) + 1000))
		}
		if random.IntN(2) == 0 {
			time.Sleep(time.Duration(random.Int64N(int64(3 * time.Second))))
		}
	}
}

var modelled = []struct {
	limit string
	by    sluice.Algorithm
}{
	{"100/second", sluice.TokenBucket}, {"30/second burst 7", sluice.GCRA}, {"600/minute burst 4", sluice.TokenBucket},
	{"40/second", sluice.FixedWindow}, {"100/7s", sluice.FixedWindow}, {"60/3s", sluice.SlidingWindowCounter},
}

// Whatever the processes are asked for, no more is above the limit than is said.
func TestBound(t *testing.T) {
	base := seed.Of(t)
	for _, m := range modelled {
		for _, n := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%s %v by %d", m.limit, m.by, n), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := plan(t, m.limit, m.by)
					if err := synced.Can(p); err != nil {
						t.Fatal(err)
					}
					const trip = 10 * time.Millisecond
					random := rand.New(rand.NewPCG(base, uint64(n)))
					f := newFleet(n, newServer(trip, random))
					h := &history{}
					until := time.Now().Add(30 * time.Second)
					var all sync.WaitGroup
					for i := range n {
						own := rand.New(rand.NewPCG(base<<8+uint64(n), uint64(i)))
						all.Go(func() { f.ask(i, p, own, until, h) })
					}
					all.Wait()
					f.close()
					// What another has let pass is told after 100 ms, and what is known is 300 ms old
					// at the most.
					most, blind := h.excess(p, 4*synced.Every+2*trip)
					t.Logf("%d let pass, at most %d above the limit, %d are said", len(h.all), most, synced.Excess(p, n))
					if most > synced.Excess(p, n) || blind > 0 {
						t.Errorf("%d units above the limit, of %d that may be; %d more than others have let pass unseen", most, synced.Excess(p, n), blind)
					}
					if want := int64(n-1) * p.Capacity * 9 / 10; most < want { // some has drained by then
						t.Errorf("%d above the limit, want the %d of the first bursts at least", most, want)
					}
				})
			})
		}
	}
}
