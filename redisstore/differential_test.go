package redisstore_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/redisstore"
	"github.com/sluicehq/sluice/storetest"
)

// histories compare the decisions of Redis with those of the memory store, over a number of steps.
var histories = map[string]func(t *testing.T, steps int){
	"differential": func(t *testing.T, steps int) {
		storetest.Differential(t, memory.New(), timed(t, redistest.Shared(t)), steps, seed.Of(t))
	},
	"batches":    testBatches,
	"bursts":     testBursts,
	"crowd":      testCrowd,
	"months":     testMonths,
	"remembered": testRemembered,
	"foreign":    testForeignInBatch,
}

func TestHistories(t *testing.T) {
	t.Parallel()
	for name, run := range histories {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, 2000)
		})
	}
}

// together compares the decisions of store about the requests of one call with those of twin about each request alone.
// It returns the receipts.
func together(t *testing.T, twin storetest.TimedStore, store *redisstore.TimedStore, now int64, requests [][]sluice.Charge) [][]sluice.Receipt {
	t.Helper()
	receipts := make([][]sluice.Receipt, len(requests))
	for i := range requests {
		receipts[i] = make([]sluice.Receipt, len(requests[i]))
	}
	if err := store.TakeAllAt(t.Context(), now, requests, receipts); err != nil {
		t.Fatal(err)
	}
	for i, charges := range requests {
		for j, want := range plantest.TakeAt(t, twin, now, charges...) {
			if receipts[i][j] != want {
				t.Fatalf("at %d, request %d of %d, charge %d %+v of %v: %+v, alone %+v",
					now, i, len(requests), j, charges[j], charges[j].Plan.Limit, receipts[i][j], want)
			}
		}
	}
	return receipts
}

// refusedOf returns how many requests are denied.
func refusedOf(requests [][]sluice.Charge, receipts [][]sluice.Receipt) (n int) {
	for i := range requests {
		if !sluice.Admitted(requests[i], receipts[i]) {
			n++
		}
	}
	return n
}

// plansOf returns a plan of each algorithm for each of some limits.
func plansOf(t *testing.T, limits ...string) (plans []*sluice.Plan) {
	for _, a := range sluice.Algorithms() {
		for _, limit := range limits {
			plans = append(plans, plan(t, a, limit))
		}
	}
	return plans
}

// Requests that share a call of the script, and keys in it, are decided as if each had been sent alone.
func testBatches(t *testing.T, steps int) {
	one, many := memory.New(), timed(t, redistest.Shared(t))
	r := rand.New(rand.NewPCG(seed.Of(t), 2))
	// Some of the limits share a fingerprint, and there are short and long logs.
	plans := plansOf(t, "7/second", "70/10s", "1000/minute", "100/minute", "6000/minute")
	plans = append(plans, plan(t, sluice.TokenBucket, "100/minute burst 20"), plan(t, sluice.GCRA, "7/second burst 500"))
	for i, p := range plans {
		if owing, err := p.WithMost(2 * p.Capacity); err == nil && i%3 == 0 {
			plans[i] = owing
		}
	}
	locks := []*sluice.Plan{
		lockOf(t, sluice.Penalty{First: 100 * time.Millisecond}),
		lockOf(t, sluice.Penalty{First: 90 * time.Millisecond, Factor: 3, Most: 2 * time.Second, Forget: time.Second}),
	}
	places := []*sluice.Plan{inFlight(t, 1), inFlight(t, 3), plantest.Distinct(t, "2/100ms"), plantest.Distinct(t, "1/1s")}
	now := int64(1_700_000_000_000_000)
	request := func() (charges []sluice.Charge) {
		for i := range 1 + r.IntN(4)*r.IntN(2) {
			p := plans[r.IntN(len(plans))]
			c := sluice.Charge{Key: fmt.Sprint("k", i, "/", r.IntN(3)), Plan: p, Cost: 1, Shadow: r.IntN(8) == 0}
			switch r.IntN(8) {
			case 0:
				c.Cost = -r.Int64N(5)
				if r.IntN(2) == 0 {
					c.Until = now + r.Int64N(3) - 1
				}
			case 1:
				c.Cost = r.Int64N(p.Capacity/2 + 2)
			}
			c.Owe = c.Cost > 0 && r.IntN(8) == 0
			if c.Owe {
				c.Cost += r.Int64N(p.Capacity)
			}
			charges = append(charges, c)
			if r.IntN(3) == 0 {
				lock := sluice.Charge{Key: c.Key, Plan: locks[r.IntN(len(locks))], Cost: r.Int64N(12) - 1, Shadow: c.Shadow}
				charges = append(charges, lock)
			}
		}
		if r.IntN(3) == 0 {
			c := sluice.Charge{Key: charges[0].Key, Plan: places[r.IntN(len(places))], Permit: r.Uint64N(9), Cost: min(r.Int64N(8)-1, 1), Shadow: r.IntN(2) == 0}
			if r.IntN(50) == 0 {
				c.Cost = sluice.All
			}
			charges = slices.Insert(charges, r.IntN(len(charges)+1), c)
		}
		return charges
	}
	var decided, refused, placesRefused, late, cut, long int
	for range steps / 20 {
		var requests [][]sluice.Charge
		for range 1 + r.IntN(40) {
			requests = append(requests, request())
		}
		receipts := together(t, one, many, now, requests)
		decided += len(requests)
		refused += refusedOf(requests, receipts)
		for i, charges := range requests {
			for j, c := range charges {
				switch got := receipts[i][j]; {
				case c.Cost == 1 && c.Plan.Kernel == kernel.InFlight && !got.Fits:
					placesRefused++
				case c.CostAt(now) != c.Cost:
					late++
				case got.Cut > 0:
					cut++
				case c.Plan.Kernel.Log() && got.Used > 1500:
					long++
				}
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
	if refused < decided/20 || refused > decided/2 || long == 0 {
		t.Errorf("premise: of %d requests, %d were denied, and a log was long %d times", decided, refused, long)
	}
	if placesRefused < decided/100 || late < decided/100 || cut < decided/100 {
		t.Errorf("premise: of %d requests, %d were denied a permit, %d refunds were too late, and debts of %d were cut", decided, placesRefused, late, cut)
	}
}

// Two processes share a state with one rate and different bursts: one counts in ticks of a microsecond, the other in
// ticks of a millisecond.
func testBursts(t *testing.T, steps int) {
	server, r := redistest.Shared(t), rand.New(rand.NewPCG(seed.Of(t), 12))
	plans := []*sluice.Plan{plan(t, sluice.TokenBucket, "999983/hour burst 10"), plan(t, sluice.TokenBucket, "999983/hour burst 1000000")}
	stores := []*redisstore.TimedStore{timed(t, server), timed(t, server)}
	var state kernel.State
	now, refused := int64(1_700_000_000_000_000), 0
	for n := range steps {
		i := r.IntN(2)
		c := sluice.Charge{Key: "k", Plan: plans[i], Cost: r.Int64N(9) - 2}
		now += r.Int64N(12_000)
		var want sluice.Receipt
		state = plans[i].Step(state, now, c.Cost, &want.Receipt)
		got := make([]sluice.Receipt, 1)
		if err := stores[i].TakeAllAt(t.Context(), now, [][]sluice.Charge{{c}}, [][]sluice.Receipt{got}); err != nil {
			t.Fatal(err)
		}
		if got[0] != want {
			t.Fatalf("step %d at %d, cost %d of %v: %+v, want %+v", n, now, c.Cost, plans[i].Limit, got[0], want)
		}
		if !want.Fits {
			refused++
		}
	}
	if refused < steps/20 {
		t.Errorf("premise: of %d Takes, %d were denied", steps, refused)
	}
}

// crowd generates requests that many clients send at the same time.
type crowd struct {
	*rand.Rand
	plans []*sluice.Plan
	lock  *sluice.Plan
}

// request returns a request with up to three limits, some of them shadows, and often a limit shared by all.
func (c *crowd) request() []sluice.Charge {
	var charges []sluice.Charge
	for i := range 1 + c.IntN(3)*c.IntN(2) {
		p := c.plans[c.IntN(len(c.plans))]
		charge := sluice.Charge{Key: fmt.Sprint("k", i, "/", c.IntN(2)), Plan: p, Cost: 1, Shadow: c.IntN(6) == 0}
		switch c.IntN(12) {
		case 0:
			charge.Cost = c.Int64N(p.Capacity/2+2) - 1
		case 1, 2:
			charge.Cost = 1 + c.Int64N(max(1, p.Capacity/10))
		}
		charges = append(charges, charge)
		if c.IntN(6) == 0 {
			charges = append(charges, sluice.Charge{Key: charge.Key, Plan: c.lock, Cost: min(1, charge.Cost), Shadow: charge.Shadow})
		}
	}
	if c.IntN(2) == 0 {
		charges = append(charges, sluice.Charge{Key: "all", Plan: c.plans[c.IntN(6)], Cost: 1})
	}
	return charges
}

// requests returns the requests of one call: a few different ones, each repeated many times, some of them alternating.
func (c *crowd) requests() (all [][]sluice.Charge) {
	var few [][]sluice.Charge
	for range 1 + c.IntN(3) {
		few = append(few, c.request())
	}
	for range 1 + c.IntN(4) {
		for range 1 + c.IntN(30) {
			all = append(all, few[0])
		}
		c.Shuffle(len(few), func(i, j int) { few[i], few[j] = few[j], few[i] })
	}
	return all
}

// run makes the given number of calls. After each, step returns the time of the next.
func (c *crowd) run(t *testing.T, calls int, now int64, step func(now int64) int64) {
	one, many := memory.New(), timed(t, redistest.Shared(t))
	decided, refused, split := 0, 0, 0
	for range calls {
		requests := c.requests()
		n := refusedOf(requests, together(t, one, many, now, requests))
		if refused += n; n > 0 && n < len(requests) {
			split++
		}
		decided += len(requests)
		now = step(now)
	}
	if many.Joined < decided/3 || refused < decided/10 || refused > decided*9/10 || split < calls/20 {
		t.Errorf("premise: of %d requests, %d were joined with others and %d denied; %d calls were partly denied",
			decided, many.Joined, refused, split)
	}
}

// Identical requests at the same time are decided as if they had come one after the other.
func testCrowd(t *testing.T, steps int) {
	c := &crowd{Rand: rand.New(rand.NewPCG(seed.Of(t), 8)), lock: lockOf(t, sluice.Penalty{First: 200 * time.Millisecond, Factor: 2})}
	c.plans = append(plansOf(t, "7/second", "70/10s", "400/3s"),
		plan(t, sluice.TokenBucket, "7/second burst 200"), plan(t, sluice.GCRA, "70/10s burst 3"))
	c.run(t, steps/20, 1_700_000_000_000_000, func(now int64) int64 {
		switch now += c.Int64N(300_000); c.IntN(40) {
		case 0:
			now -= c.Int64N(20_000_000)
		case 1:
			now += c.Int64N(20_000_000)
		}
		return now
	})
}

// Many requests of a call count by calendar months, across the ends of months and leap days, while the clock jumps
// forward and back.
func testMonths(t *testing.T, steps int) {
	c := &crowd{Rand: rand.New(rand.NewPCG(seed.Of(t), 10)), lock: lockOf(t, sluice.Penalty{First: time.Hour})}
	for _, limit := range []string{"7/month", "400/month from 15", "70/month from 29", "70/month from 30", "100/month from 31", "300/month from 31"} {
		c.plans = append(c.plans, plan(t, sluice.FixedWindow, limit))
	}
	const day = int64(24 * time.Hour / time.Microsecond)
	begin := time.Date(2095, 12, 31, 23, 59, 59, 999_999_000, time.UTC).UnixMicro()
	end := time.Date(2110, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() // stores support times until 2112
	c.run(t, steps/40, begin, func(now int64) int64 {
		if now > end {
			return begin
		}
		switch now += c.Int64N(3 * day); c.IntN(20) {
		case 0:
			now -= c.Int64N(100 * day)
		case 1:
			now += c.Int64N(300 * day)
		case 2, 3, 4:
			_, _, end := c.plans[c.IntN(len(c.plans))].WindowAt(now)
			now = end - c.Int64N(2)
		}
		return now
	})
}

// Processes that remember denials decide like a single process without a cache, as long as nothing is given back.
func testRemembered(t *testing.T, steps int) {
	server := redistest.Shared(t)
	stores := []*redisstore.TimedStore{timed(t, server), timed(t, server), timed(t, server)}
	model, r := memory.New(), rand.New(rand.NewPCG(seed.Of(t), 6))
	users, hosts, all := plansOf(t, "7/second", "20/10s"), plansOf(t, "30/second"), plansOf(t, "300/2s")
	one := func(name string, n int, plans []*sluice.Plan) sluice.Charge {
		n = r.IntN(n)
		c := sluice.Charge{Key: fmt.Sprint(name, n), Plan: plans[n%len(plans)], Cost: 1, Shadow: r.IntN(10) == 0}
		switch r.IntN(10) {
		case 0:
			c.Cost = r.Int64N(5)
		case 1:
			c.Cost = r.Int64N(c.Plan.Capacity + 3)
		}
		return c
	}
	now, refused := int64(1_700_000_000_000_000), 0
	for n := range steps {
		now += r.Int64N(10_000)
		charges := []sluice.Charge{one("user", 12, users)}
		if r.IntN(2) == 0 {
			charges = append(charges, one("host", 6, hosts), one("all", 6, all))
		}
		got := make([]sluice.Receipt, len(charges))
		if err := stores[r.IntN(len(stores))].TakeLooseAt(t.Context(), now, charges, got); err != nil {
			t.Fatal(err)
		}
		want := plantest.TakeAt(t, model, now, charges...)
		admitted := sluice.Admitted(charges, want)
		if !admitted {
			refused++
		}
		for i, c := range charges {
			// A remembered state may have room that others have used up since.
			if wrong := !got[i].Fits && want[i].Fits; wrong || got[i].Now != now || sluice.Admitted(charges, got) != admitted {
				t.Fatalf("take %d, charge %d %+v of %v: %+v, want %+v", n, i, c, c.Plan.Limit, got[i], want[i])
			}
		}
	}
	spared := 0
	for _, s := range stores {
		spared += s.Spared
	}
	if refused < steps/5 || refused > steps*4/5 || spared < refused/3 {
		t.Errorf("premise: of %d Takes, %d were denied, %d of them from memory", steps, refused, spared)
	}
}

// Whatever values some keys have, other requests in the same call are decided as usual: no value stops the script
// halfway.
func testForeignInBatch(t *testing.T, steps int) {
	server := redistest.Shared(t)
	model, store := memory.New(), timed(t, server)
	r := rand.New(rand.NewPCG(seed.Of(t), 8))
	plans := plansOf(t, "7/second", "1000/minute", "6000/minute")
	now, failed, read := int64(1_700_000_000_000_000), 0, 0
	for batch := range steps / 10 {
		now += r.Int64N(100_000)
		bad := plans[r.IntN(len(plans))]
		spoil(t, server, r, store, now, bad)
		var requests [][]sluice.Charge
		var receipts [][]sluice.Receipt
		for range 1 + r.IntN(12) {
			take := []sluice.Charge{{Key: fmt.Sprint("good", r.IntN(3)), Plan: plans[r.IntN(len(plans))], Cost: r.Int64N(4) - 1}}
			switch r.IntN(4) {
			case 0: // a shadow, because a corrupt state that looks valid by chance may allow or deny anything
				take = append(take, sluice.Charge{Key: "bad", Plan: bad, Cost: r.Int64N(9) - 3, Shadow: true})
			case 1:
				take[0] = sluice.Charge{Key: "bad", Plan: bad, Cost: r.Int64N(9) - 3}
			}
			requests, receipts = append(requests, take), append(receipts, make([]sluice.Receipt, len(take)))
		}
		errs := store.TakeEachAt(t.Context(), now, requests, receipts)
		if len(errs) != len(requests) {
			t.Fatalf("batch %d with %v: %v", batch, bad.Limit, errs[0])
		}
		for i, take := range requests {
			bads := slices.IndexFunc(take, func(c sluice.Charge) bool { return c.Key == "bad" })
			if errs[i] != nil {
				if f := foreign(t, errs[i]); bads < 0 || !slices.Equal(f.Unreadable(), []int{bads}) {
					t.Fatalf("batch %d, request %d %+v: %v", batch, i, take, errs[i])
				}
				failed++
				continue
			}
			if bads == 0 {
				read++
				continue
			}
			if want := plantest.TakeAt(t, model, now, take[0])[0]; receipts[i][0] != want {
				t.Fatalf("batch %d, request %d %+v: %+v, want %+v", batch, i, take[0], receipts[i][0], want)
			}
		}
	}
	if failed < steps/100 || read < steps/100 {
		t.Errorf("premise: %d requests with a foreign state failed, and %d with a state that looks valid did not", failed, read)
	}
}

// spoil writes a foreign or corrupt value to the key "bad".
func spoil(t *testing.T, server *redistest.Server, r *rand.Rand, store *redisstore.TimedStore, now int64, p *sluice.Plan) {
	name := redisstore.Name(store.Store, "bad", p)
	server.Do("DEL", name)
	switch r.IntN(6) {
	case 0:
		server.Do("RPUSH", name, "x")
	case 1:
		server.Do("SET", name, notStates[r.IntN(len(notStates))])
	case 2:
		server.Do("SET", name, string(noise(r, r.IntN(200))))
	case 3: // numbers in forms that only some parsers accept
		forms := []string{" %d", "%d ", "0x%x", "%de0", "+%d", "%d:7", "-%d", " -%d", "-%de0"}
		server.Do("SET", name, fmt.Sprintf(forms[r.IntN(len(forms))], now/p.Tick+r.Int64N(1000)))
	default: // a state with some bytes changed
		for range 3 {
			charges := [][]sluice.Charge{{{Key: "bad", Plan: p, Cost: 1 + r.Int64N(p.Capacity/4+1)}}}
			_ = store.TakeAllAt(t.Context(), now, charges, [][]sluice.Receipt{make([]sluice.Receipt, 1)})
		}
		text := []byte(server.Do("GET", name))
		if len(text) == 148 && r.IntN(2) == 0 { // a log of counts: with a wrong sum, or without counts
			binary.LittleEndian.PutUint64(text[8:], math.Float64bits(float64(r.Int64N(2*p.Capacity))))
			if r.IntN(2) == 0 {
				clear(text[16:])
			}
		}
		for range r.IntN(4) {
			text[r.IntN(len(text))] = noise(r, 1)[0]
		}
		server.Do("SET", name, string(text))
	}
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.IntN(256))
		if r.IntN(2) == 0 {
			b[i] = "0123456789:-"[r.IntN(12)]
		}
	}
	return b
}

// Expired units may stay in a log for a while, but not until its two-byte stamps wrap around.
func TestLogComesRound(t *testing.T) {
	t.Parallel()
	p := plan(t, sluice.SlidingWindowLog, "1000/32768ms") // in ticks of a millisecond
	for _, last := range []int64{65_534, 65_535, 65_536, 65_537, 65_600} {
		twins := plantest.Twins{Store: timed(t, redistest.Shared(t)), Like: memory.New()}
		for _, step := range []struct{ ms, cost int64 }{{0, 1}, {32_000, 8}, {33_000, 100}, {last, 1}, {last + 1, 0}, {last + 2, 1000}} {
			twins.At(t, 1_700_000_000_000_000+1000*step.ms, sluice.Charge{Key: "k", Plan: p, Cost: step.cost})
		}
	}
}

// A log of the largest length has the decisions of the memory store, and expired units do not stay in it for long.
func testLongLog(t *testing.T, server *redistest.Server, s *redisstore.TimedStore, period time.Duration) {
	twins := plantest.Twins{Store: s, Like: memory.New()}
	p := plan(t, sluice.SlidingWindowLogExact, fmt.Sprintf("%d/%v", kernel.MaxLogCount, period))
	now := int64(1_700_000_000_000_000)
	step := func(cost int64, wait time.Duration) bool {
		t.Helper()
		now += wait.Microseconds()
		return twins.At(t, now, sluice.Charge{Key: "k", Plan: p, Cost: cost})[0].Fits
	}
	const most = 40_000
	r := rand.New(rand.NewPCG(seed.Of(t), 4))
	refused := 0
	for n := range 400 {
		if !step(1+r.Int64N(most), time.Duration(r.Int64N(int64(period/30)))) {
			refused++
		}
		if n < 100 && r.IntN(10) == 0 { // later, units are only removed when they expire
			step(-r.Int64N(1000), 0)
		}
		if r.IntN(50) == 0 {
			step(1, -period)
			step(1, -2*period)
		}
		if n := number(t, server, "STRLEN", redisstore.Name(s.Store, "k", p)); n > 16+4*2*(kernel.MaxLogCount+most) {
			t.Fatalf("the log takes %d bytes", n)
		}
	}
	if refused == 0 {
		t.Error("the log was never full")
	}
	step(1, 2*period)
	step(sluice.All, 0)
	if keys := server.Do("DBSIZE"); keys != "0" {
		t.Errorf("%s keys are left after all was given back", keys)
	}
}
