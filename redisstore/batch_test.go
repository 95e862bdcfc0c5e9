package redisstore_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// steps returns how long a differential run is: 10,000 steps, or $SLUICE_STEPS.
func steps(t *testing.T) int {
	text := os.Getenv("SLUICE_STEPS")
	if text == "" {
		return 10_000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("SLUICE_STEPS: %v", err)
	}
	return n
}

func TestDifferential(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := redisstore.Timed(open(t, "unix://"+server.Socket))
	storetest.Differential(t, memory.New(), s, steps(t), 1)
}

// Requests that share one call of the script, and keys in it, are decided as if each
// had come alone.
func TestBatches(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	one, many := memory.New(), redisstore.Timed(open(t, "unix://"+server.Socket))
	r := rand.New(rand.NewPCG(1, 2))
	var plans []*sluice.Plan
	for _, a := range sluice.Algorithms() {
		// One and the same fingerprint for the two of a pair, and logs short and long.
		for _, limit := range []string{"7/second", "70/10s", "1000/minute", "100/minute", "6000/minute"} {
			plans = append(plans, plan(t, a, limit))
		}
	}
	plans = append(plans, plan(t, sluice.TokenBucket, "100/minute burst 20"), plan(t, sluice.GCRA, "7/second burst 500"))
	for i, p := range plans {
		if i%3 > 0 {
			continue
		}
		if owing, err := p.WithMost(2 * p.Capacity); err == nil {
			plans[i] = owing
		}
	}
	locks := []*sluice.Plan{
		lockOf(t, sluice.Penalty{First: 100 * time.Millisecond}),
		lockOf(t, sluice.Penalty{First: 90 * time.Millisecond, Factor: 3, Most: 2 * time.Second, Forget: time.Second}),
	}
	places := []*sluice.Plan{inFlight(t, 1), inFlight(t, 3)}
	now := int64(1_700_000_000_000_000)
	refused, decided, long := 0, 0, false
	placesRefused, late, cut := 0, 0, 0
	for batch := range steps(t) / 100 {
		var charges [][]sluice.Charge
		var receipts [][]sluice.Receipt
		for range 1 + r.IntN(40) {
			var take []sluice.Charge
			for i := range 1 + r.IntN(4)*r.IntN(2) {
				p := plans[r.IntN(len(plans))]
				c := sluice.Charge{Key: fmt.Sprint("k", i, "/", r.IntN(3)), Plan: p, Cost: 1, Shadow: r.IntN(8) == 0}
				switch r.IntN(8) {
				case 0:
					c.Cost = -r.Int64N(5)
					if r.IntN(2) == 0 {
						c.Until = now + r.Int64N(3) - 1
					}
					if c.CostAt(now) != c.Cost {
						late++
					}
				case 1:
					c.Cost = r.Int64N(p.Capacity/2 + 2)
				}
				c.Owe = c.Cost > 0 && r.IntN(8) == 0
				if c.Owe {
					c.Cost += r.Int64N(p.Capacity)
				}
				take = append(take, c)
				if r.IntN(3) == 0 {
					lock := sluice.Charge{Key: c.Key, Plan: locks[r.IntN(len(locks))], Cost: r.Int64N(12) - 1, Shadow: c.Shadow}
					take = append(take, lock)
				}
			}
			if r.IntN(3) == 0 {
				c := sluice.Charge{Key: take[0].Key, Plan: places[r.IntN(len(places))], Place: r.Uint64N(9), Cost: min(r.Int64N(8)-1, 1), Shadow: r.IntN(2) == 0}
				if r.IntN(50) == 0 {
					c.Cost = sluice.All
				}
				take = slices.Insert(take, r.IntN(len(take)+1), c)
			}
			charges, receipts = append(charges, take), append(receipts, make([]sluice.Receipt, len(take)))
		}
		if err := many.TakeAllAt(t.Context(), now, charges, receipts); err != nil {
			t.Fatal(err)
		}
		for i, take := range charges {
			want := make([]sluice.Receipt, len(take))
			if err := one.TakeAt(t.Context(), now, take, want); err != nil {
				t.Fatal(err)
			}
			for j := range want {
				if receipts[i][j] != want[j] {
					t.Fatalf("batch %d, request %d, charge %d %+v of %v: %+v, alone %+v",
						batch, i, j, take[j], take[j].Plan.Limit, receipts[i][j], want[j])
				}
				if take[j].Cost == 1 && take[j].Plan.Kernel == sluice.InFlight && !want[j].Fits {
					placesRefused++
				}
				if want[j].Cut > 0 {
					cut++
				}
				long = long || take[j].Plan.Kernel.Log() && want[j].Used > 1500
			}
			decided++
			if !sluice.Admitted(take, want) {
				refused++
			}
		}
		switch r.IntN(20) {
		case 0:
			now -= r.Int64N(90_000_000)
		case 1:
			now += r.Int64N(90_000_000)
		default:
			now += r.Int64N(400_000)
		}
	}
	if refused < decided/20 || refused > decided/2 || !long {
		t.Errorf("of %d requests %d were refused, and a log was long: %v: this tells little", decided, refused, long)
	}
	if placesRefused < decided/100 || late < decided/100 || cut < decided/100 {
		t.Errorf("of %d requests %d were refused a place, %d gave back too late, and debts of %d were cut: this tells little", decided, placesRefused, late, cut)
	}
}

func inFlight(t testing.TB, places int64) *sluice.Plan {
	t.Helper()
	p, err := sluice.NewInFlight(places)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestVectors(t *testing.T) {
	server := redistest.Start(t)
	storetest.RunVectors(t, "../testdata/vectors", func(t *testing.T) storetest.TimedStore {
		server.Do("FLUSHALL")
		return redisstore.Timed(open(t, "unix://"+server.Socket))
	})
}

// What has expired may stay in a log for a while, but not until its stamps come round.
func TestLogComesRound(t *testing.T) {
	server := redistest.Start(t)
	p := plan(t, sluice.SlidingWindowLog, "1000/32768ms") // in ticks of a millisecond
	for _, last := range []int64{65_534, 65_535, 65_536, 65_537, 65_600} {
		server.Do("FLUSHALL")
		store, model := redisstore.Timed(open(t, server.URL())), memory.New()
		for _, step := range []struct{ ms, cost int64 }{{0, 1}, {32_000, 8}, {33_000, 100}, {last, 1}, {last + 1, 0}, {last + 2, 1000}} {
			now := 1_700_000_000_000_000 + 1000*step.ms
			charges := []sluice.Charge{{Key: "k", Plan: p, Cost: step.cost}}
			got, want := make([]sluice.Receipt, 1), make([]sluice.Receipt, 1)
			if err := store.TakeAt(t.Context(), now, charges, got); err != nil {
				t.Fatal(err)
			}
			if err := model.TakeAt(t.Context(), now, charges, want); err != nil {
				t.Fatal(err)
			}
			if got[0] != want[0] {
				t.Errorf("%d ms, cost %d: %+v, in memory %+v", step.ms, step.cost, got[0], want[0])
			}
		}
	}
}

// A log may be as long as it likes: it is not read as a whole, and what has passed does
// not stay.
func TestLongLog(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	store := redisstore.Timed(open(t, "unix://"+server.Socket))
	for _, period := range []time.Duration{time.Minute, time.Hour} {
		server.Do("FLUSHALL")
		testLongLog(t, server, store, period)
	}
}

func testLongLog(t *testing.T, server *redistest.Server, s *redisstore.TimedStore, period time.Duration) {
	model := memory.New()
	p := plan(t, sluice.SlidingWindowLogExact, fmt.Sprintf("%d/%v", sluice.MaxLogCount, period))
	now := int64(1_700_000_000_000_000)
	step := func(cost int64, wait time.Duration) sluice.Receipt {
		t.Helper()
		now += wait.Microseconds()
		charges := []sluice.Charge{{Key: "k", Plan: p, Cost: cost}}
		got, want := make([]sluice.Receipt, 1), make([]sluice.Receipt, 1)
		if err := s.TakeAt(t.Context(), now, charges, got); err != nil {
			t.Fatal(err)
		}
		if err := model.TakeAt(t.Context(), now, charges, want); err != nil {
			t.Fatal(err)
		}
		if got[0] != want[0] {
			t.Fatalf("cost %d after %v: %+v, in memory %+v", cost, wait, got[0], want[0])
		}
		return got[0]
	}
	const most = 40_000
	r := rand.New(rand.NewPCG(3, 4))
	refused := 0
	for n := range 400 {
		if !step(1+r.Int64N(most), time.Duration(r.Int64N(int64(period/30)))).Fits {
			refused++
		}
		if n < 100 && r.IntN(10) == 0 { // later nothing but time clears up
			step(-r.Int64N(1000), 0)
		}
		if r.IntN(50) == 0 {
			step(1, -period)
			step(1, -2*period)
		}
		name := server.Do("KEYS", "*")
		if n := number(t, server, "STRLEN", name); n > 16+4*2*(sluice.MaxLogCount+most) {
			t.Fatalf("the log takes %d bytes", n)
		}
	}
	if refused == 0 {
		t.Error("the log has never been full")
	}
	step(1, 2*period)
	step(sluice.All, 0)
	if keys := server.Do("DBSIZE"); keys != "0" {
		t.Errorf("%s keys are left after all was given back", keys)
	}
}
