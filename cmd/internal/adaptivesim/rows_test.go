package adaptivesim

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
)

// A row is a sequence of loads with the targets that a Limiter has to reach.
type row struct {
	name     string
	up       func(*upstream)
	phases   []phase
	from, to int     // the arrivals of these seconds are measured
	tuned    float64 // the hand-tuned limit; 0 is 32
	setUp    func(*simulation)
	gateways int
	long     bool          // only in TestLongSimulation
	ahead    time.Duration // how far the clocks of all gateways but the first are ahead

	critical float64 // minimum percentage of critical requests served
	goodput  float64 // minimum percentage of the hand-tuned limit's goodput
	slowest  float64 // maximum p99 as a multiple of the p99 at 70 % load; 0: any
	refuses  bool    // critical requests may be refused
}

const second = time.Second

// load returns a phase in which 30 % of the requests are sheddable and 10 % critical.
func load(from int, rate float64) phase {
	return phase{from: time.Duration(from) * second, rate: [3]float64{.3 * rate, .6 * rate, .1 * rate}}
}

// calm is 70 % of the upstream's capacity.
func calm(from int) phase { return load(from, 560) }

func with(p phase, change func(*phase)) phase { change(&p); return p }

func deluge(from int) phase {
	return with(calm(from), func(p *phase) { p.rate[0] *= 12 })
}

func thrice(p *phase) { p.slower = 3 }

func double(p *phase) { p.rate = load(0, 1600).rate }

func taking(d func(time.Duration) func(*rand.Rand) time.Duration) func(*upstream) {
	return func(u *upstream) { u.takes = d(20 * time.Millisecond) }
}

// patient is a server of language models: it answers 64 requests at a time, each in 20 s.
func patient(u *upstream) {
	*u = upstream{workers: 64, takes: lognormal(20*second, 0.3), thrash: 1000, patience: 120 * second}
}

// streaming sends the head of a response after half a second, and the body over 20 s.
func streaming(u *upstream) {
	*u = upstream{workers: 16, takes: lognormal(500*time.Millisecond, 0.5), thrash: 48, patience: 10 * second, body: 20 * second}
}

// failing is a load of 1.3 times the capacity in which a fraction of the requests gets 503.
func failing(part float64) phase {
	return with(load(60, 1040), func(p *phase) { p.fails, p.part = time.Millisecond, part })
}

// workers is a server with n workers that a long queue does not slow down.
func workers(n int) func(*upstream) { return func(u *upstream) { u.workers, u.thrash = n, 1000 } }

// wide is a server with 500 workers. It can serve far more requests at once than the first limit allows.
func wide(takes time.Duration) func(*upstream) {
	return func(u *upstream) {
		*u = upstream{workers: 500, takes: lognormal(takes, 0.5), thrash: 10_000, patience: 10 * second}
	}
}

// slow is a server with a capacity of 50 requests a second. Under the first limit, requests wait longer than the
// clients' patience.
func slow(u *upstream) {
	u.workers, u.takes, u.thrash = 5, constant(100*time.Millisecond), 1000
}

// small is 1.5 times the capacity of a server, but 0.9 times without the sheddable requests.
func small(bears float64) phase { return phase{rate: [3]float64{.6 * bears, .6 * bears, .3 * bears}} }

func fourfold(u *upstream) { u.workers, u.thrash = 4*u.workers, 4*u.thrash }

// restart replaces the limiter of the first gateway at the given time.
func restart(at time.Duration) func(*simulation) {
	return func(s *simulation) {
		s.every = func(now time.Duration) {
			if g, ok := s.gates[0].(limiterGate); ok && now >= at {
				g.Limiter = adaptive.New(adaptive.Config{})
				s.gates[0], s.every = g, nil
			}
		}
	}
}

var rows = []row{
	{name: "70 % load", phases: []phase{calm(0)}, from: 10, to: 130, critical: 100, goodput: 98, slowest: 1.1},
	{name: "3 × all", phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "3 × all, first 10 s", phases: []phase{calm(0), load(60, 2400)}, from: 60, to: 70, critical: 99.8, goodput: 95, refuses: true},
	{name: "12 × sheddable", phases: []phase{calm(0), deluge(60)}, from: 70, to: 190, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "12 × sheddable, first 10 s", phases: []phase{calm(0), deluge(60)}, from: 60, to: 70, critical: 99.8, goodput: 95, refuses: true},
	{name: "server 3 × slower", phases: []phase{calm(0), with(calm(60), thrice)}, from: 70, to: 190, critical: 99.9, goodput: 98, refuses: true},
	{name: "server 3 × slower, first 10 s", phases: []phase{calm(0), with(calm(60), thrice)}, from: 60, to: 70, critical: 99.5, goodput: 65, refuses: true},
	{name: "and as fast again, first 10 s", phases: []phase{calm(0), with(calm(60), thrice), calm(120)}, from: 120, to: 130, critical: 99.8, goodput: 90, refuses: true},
	{name: "and as fast again", phases: []phase{calm(0), with(calm(60), thrice), calm(120)}, from: 130, to: 190, critical: 100, goodput: 98, slowest: 1.2},
	{name: "server 10 × slower, from minute 4", phases: []phase{calm(0), with(load(60, 160), func(p *phase) { p.slower = 10 })}, from: 300, to: 420, critical: 99.5, goodput: 90, refuses: true},
	{name: "half of the server away", phases: []phase{calm(0), with(calm(60), func(p *phase) { p.away = 8 })}, from: 70, to: 190, critical: 99.9, goodput: 98, refuses: true, tuned: 18},
	{name: "1.3 × for 20 minutes, the last 2", phases: []phase{calm(0), load(60, 1040)}, from: 1140, to: 1260, critical: 99.9, goodput: 98, slowest: 2, refuses: true, long: true},
	{name: "1.3 × for an hour, the last 10 min", phases: []phase{calm(0), load(60, 1040)}, from: 3060, to: 3660, critical: 99.9, goodput: 98, slowest: 2, refuses: true, long: true},
	{name: "1.3 × for 3 minutes, the last", phases: []phase{calm(0), load(60, 1040)}, from: 180, to: 240, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "steps of 0.5, 2, 0.8, 4 and 1.2 ×", phases: []phase{load(0, 400), load(30, 1600), load(60, 640), load(90, 3200), load(120, 960)}, from: 10, to: 150, critical: 99.8, goodput: 98, refuses: true},
	{name: "overload over: after 10 s", phases: []phase{calm(0), load(60, 2400), calm(120)}, from: 130, to: 190, critical: 100, goodput: 98, slowest: 1.1},
	{name: "no traffic for a minute, then 3 ×", phases: []phase{load(0, 2400), load(60, 0), load(120, 2400)}, from: 120, to: 130, critical: 99.8, goodput: 95, refuses: true},
	{name: "restart at 3 ×, first 10 s", phases: []phase{calm(0), load(60, 2400)}, from: 90, to: 100, setUp: restart(90 * second), critical: 99.8, goodput: 90, refuses: true},
	{name: "restart at 3 ×", phases: []phase{calm(0), load(60, 2400)}, from: 100, to: 190, setUp: restart(90 * second), critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "only sheddable sheds, cold, 4 workers", up: workers(4), phases: []phase{small(200)}, from: 10, to: 60, tuned: 12, critical: 100, goodput: 95, slowest: 2},
	{name: "only sheddable sheds, cold, 2 workers", up: workers(2), phases: []phase{small(100)}, from: 10, to: 60, tuned: 8, critical: 100, goodput: 95, slowest: 2},
	{name: "only sheddable sheds, cold, 1 worker", up: workers(1), phases: []phase{small(50)}, from: 20, to: 80, tuned: 6, critical: 100, goodput: 95, slowest: 2},
	{name: "slow server, cold, 3 × all", up: slow, phases: []phase{load(0, 150)}, from: 10, to: 60, tuned: 10, critical: 99, goodput: 90, refuses: true, long: true},
	{name: "slow server, restart at 3 × all", up: slow, phases: []phase{load(0, 35), load(60, 150)}, from: 100, to: 190, setUp: restart(90 * second), tuned: 10, critical: 99, goodput: 90, refuses: true, long: true},
	{name: "slow server, half of it away and back", up: slow, phases: []phase{load(0, 75), with(load(30, 75), func(p *phase) { p.away = 3 }), load(60, 75)}, from: 40, to: 90, tuned: 10, critical: 99, goodput: 80, refuses: true, long: true},
	{name: "slow server, two gateways, cold, 3 × all", up: slow, phases: []phase{load(0, 150)}, from: 20, to: 120, gateways: 2, tuned: 5, critical: 99, goodput: 85, refuses: true, long: true},
	{name: "wide, cold, 70 %", up: wide(200 * time.Millisecond), phases: []phase{load(0, 1750)}, from: 0, to: 60, tuned: 2000, critical: 100, goodput: 90},
	{name: "wide and slow, cold, 70 %", up: wide(second), phases: []phase{load(0, 350)}, from: 0, to: 60, tuned: 2000, critical: 100, goodput: 75},
	{name: "wide and slow, cold, 30 %", up: wide(second), phases: []phase{load(0, 150)}, from: 0, to: 60, tuned: 2000, critical: 100, goodput: 80},
	{name: "two gateways, 3 × all", phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, gateways: 2, tuned: 16, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "two, clocks 7.6 s apart", phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, gateways: 2, tuned: 16, ahead: 7600 * time.Millisecond, critical: 95, goodput: 65, refuses: true},
	{name: "four gateways, 3 × all, from minute 4", phases: []phase{calm(0), load(60, 2400)}, from: 300, to: 420, gateways: 4, tuned: 8, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "eight gateways, a server four times as large", up: fourfold, phases: []phase{load(0, 2240), load(60, 9600)}, from: 120, to: 240, gateways: 8, tuned: 14, critical: 99.9, goodput: 98, refuses: true, long: true},
	{name: "heavy tails, 70 % load", up: taking(tailed), phases: []phase{calm(0)}, from: 10, to: 130, critical: 99.4, goodput: 93, slowest: 1.1, refuses: true},
	{name: "heavy tails, 3 × all", up: taking(tailed), phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, critical: 99.4, goodput: 93, slowest: 2, refuses: true},
	{name: "exponential times, 3 × all", up: taking(exponential), phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "equal times, 3 × all", up: taking(constant), phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, critical: 99.9, goodput: 98, slowest: 2, refuses: true},
	{name: "seven in ten cached, 3 × all", up: taking(cached), phases: []phase{calm(0), load(60, 2400)}, from: 70, to: 190, critical: 99.9, goodput: 93, refuses: true},
	{name: "1.3 ×, 4 % are 503", phases: []phase{calm(0), failing(.04)}, from: 70, to: 190, critical: 95, goodput: 95, slowest: 2, refuses: true},
	{name: "1.3 ×, 6 % are 503", phases: []phase{calm(0), failing(.06)}, from: 70, to: 190, critical: 93, goodput: 95, slowest: 2, refuses: true},
	{name: "1.3 ×, 12 % are 503", phases: []phase{calm(0), failing(.12)}, from: 70, to: 190, critical: 86.5, goodput: 95, slowest: 2, refuses: true},
	{name: "2 ×, 30 % are 503", phases: []phase{calm(0), with(failing(.3), double)}, from: 70, to: 190, critical: 67, goodput: 95, slowest: 2, refuses: true},
	{name: "2/s of 20 s each", up: patient, phases: []phase{load(0, 2)}, from: 0, to: 1000, tuned: 64, critical: 100, goodput: 100},
	{name: "2/s with heads in 0.5 s", up: streaming, phases: []phase{load(0, 2)}, from: 0, to: 1000, tuned: 64, critical: 100, goodput: 100},
	{name: "10/s with heads in 0.5 s", up: streaming, phases: []phase{load(0, 10)}, from: 0, to: 300, tuned: 400, critical: 100, goodput: 100},
	{name: "1/s with heads in 20 ms, streams of 300 s", up: func(u *upstream) { u.body = 300 * second }, phases: []phase{load(0, 1)}, from: 0, to: 1200, tuned: 1000, critical: 100, goodput: 100},
	{name: "10/s of 20 s each", up: patient, phases: []phase{load(0, 2), load(200, 10)}, from: 300, to: 1300, tuned: 90, critical: 99, goodput: 93, refuses: true},
}

// gates has the constructors of the limits by name.
var gates = map[string]func(r row) gate{
	"none":      func(row) gate { return fixed(1e9) },
	"400":       func(row) gate { return fixed(400) },
	"tuned":     func(r row) gate { return fixed(cmp.Or(r.tuned, 32)) },
	"gradient2": func(row) gate { return gradient2() },
	"envoy":     func(row) gate { return envoy() },
	"failsafe":  func(row) gate { return failsafe() },
	"sluice":    func(row) gate { return limiterGate{Limiter: adaptive.New(adaptive.Config{})} },
}

func upstreamOf(r row) upstream {
	u := upstream{workers: 16, takes: lognormal(20*time.Millisecond, 0.5), thrash: 48, patience: second}
	if r.up != nil {
		r.up(&u)
	}
	return u
}

// play simulates a row with the named limit and a seed.
func play(t *testing.T, r row, name string, seed uint64) (*simulation, result) {
	t.Helper()
	s := &simulation{upstream: upstreamOf(r), phases: r.phases}
	run := func() {
		for i := range max(r.gateways, 1) {
			g := gates[name](r)
			if l, ok := g.(limiterGate); ok && i > 0 {
				l.ahead = r.ahead
				g = l
			}
			s.gates = append(s.gates, g)
		}
		if r.setUp != nil {
			r.setUp(s)
		}
		s.run(seed, time.Duration(r.to)*second+s.patience)
	}
	if name == "failsafe" {
		synctest.Test(t, func(*testing.T) {
			start := time.Now()
			s.advance = func(now time.Duration) { time.Sleep(now - time.Since(start)) }
			run()
		})
	} else {
		run()
	}
	return s, s.result(time.Duration(r.from)*second, time.Duration(r.to)*second)
}

// check compares a row with its targets.
func (r row) check(t *testing.T, seed uint64) {
	t.Helper()
	quiet := r
	quiet.phases, quiet.from, quiet.to, quiet.setUp = []phase{r.phases[0]}, 10, 70, nil
	if sum := r.phases[0].rate[0] + r.phases[0].rate[1] + r.phases[0].rate[2]; r.phases[0].rate != calm(0).rate {
		capacity := 800.0 / 16 * float64(cmp.Or(upstreamOf(r).workers, 16))
		for i := range quiet.phases[0].rate {
			quiet.phases[0].rate[i] *= 0.7 * capacity / sum
		}
	}
	_, tuned := play(t, r, "tuned", seed)
	_, got := play(t, r, "sluice", seed)
	problem := ""
	if got.served[adaptive.Critical-1] < r.critical {
		problem += fmt.Sprintf(", want %g %% of critical", r.critical)
	}
	if !r.refuses && got.refused[adaptive.Critical-1] > 0 {
		problem += fmt.Sprintf(", %d critical refused", got.refused[adaptive.Critical-1])
	}
	part := 100 * got.goodput / tuned.goodput
	if part < r.goodput {
		problem += fmt.Sprintf(", want %g %% of goodput", r.goodput)
	}
	slower := 0.0
	if r.slowest > 0 {
		_, calm := play(t, quiet, "none", seed)
		if slower = float64(got.p99) / float64(calm.p99); slower > r.slowest {
			problem += fmt.Sprintf(", want p99 %g times that at 70 %%", r.slowest)
		}
	}
	line := fmt.Sprintf("%-34s seed %d: %6.1f/s, %5.1f %% of tuned; served %6.2f %6.2f %6.2f %%; p99 %v, %.2f times",
		r.name, seed, got.goodput, part, got.served[0], got.served[1], got.served[2], got.p99.Round(time.Millisecond), slower)
	if problem != "" {
		t.Errorf("%s%s", line, problem)
	} else {
		t.Log(line)
	}
}

var only = flag.String("rows", "", "simulate only the rows whose names contain this text")

// testRows checks each row with the given number of seeds. If short is set, it skips the long rows.
func testRows(t *testing.T, short bool, seeds uint64) {
	t.Helper()
	for _, r := range rows {
		if strings.Contains(r.name, *only) && !(short && r.long) {
			for seed := range seeds {
				r.check(t, seed+1)
			}
		}
	}
}

func TestSimulation(t *testing.T) { testRows(t, true, 1) }

// While an upstream answers every request with 503, the limit falls to its minimum. Ten seconds after the upstream has
// recovered, requests are served again.
func TestFailingUpstream(t *testing.T) {
	t.Parallel()
	for _, took := range []time.Duration{time.Millisecond, 300 * time.Millisecond} {
		least := int64(1000)
		r := row{
			phases: []phase{calm(0), with(load(20, 100/took.Seconds()), func(p *phase) { p.fails = took }), calm(35)},
			from:   45, to: 55,
			setUp: func(s *simulation) {
				s.every = func(now time.Duration) {
					if now > 20*second && now < 35*second {
						least = min(least, s.gates[0].(limiterGate).State(now).Limit)
					}
				}
			},
		}
		if _, got := play(t, r, "sluice", 1); least > 4 || got.served[adaptive.Normal-1] < 99.9 || got.served[adaptive.Critical-1] < 100 {
			t.Errorf("503 after %v: the lowest limit was %d; after the recovery, %.2f %% were served", took, least, got.served)
		}
	}
}

// Cheap answers before a burst, or in bursts, cause no refusals of critical requests at 70 % load, and hardly any of
// normal ones.
func TestCheapAnswers(t *testing.T) {
	t.Parallel()
	cheap := func(p *phase) { p.cheap = 1 }
	courses := map[string][]phase{
		"quiet night, morning, burst":    {with(load(0, 6), cheap), calm(120), load(130, 1000), calm(134)},
		"busy night, burst":              {with(calm(0), cheap), load(120, 2400), calm(134)},
		"a burst of cheap, one of usual": {calm(0), with(load(128, 5000), cheap), load(130, 2400), calm(134)},
	}
	for _, extra := range []float64{1500, 3000, 6000} {
		c := []phase{calm(0), load(56, 2400), calm(58)}
		for at := 60; at < 260; at += 10 {
			c = append(c, with(calm(at), func(p *phase) { p.rate[0] += extra; p.cheap = extra / (extra + 560) }), calm(at+1))
		}
		courses[fmt.Sprintf("%v/s for 1 s in 10", extra)] = c
	}
	for name, phases := range courses {
		s, all := play(t, row{phases: phases, from: 140, to: 260}, "sluice", 1)
		normal := 0
		for at := 141; at < 260; at += 10 {
			normal += s.result(time.Duration(at)*second, time.Duration(at+9)*second).refused[adaptive.Normal-1]
		}
		if critical := all.refused[adaptive.Critical-1]; critical > 0 || normal > 100 { // of 36,000 normal requests
			t.Errorf("%s: %d critical requests were refused, and %d normal ones outside the bursts", name, critical, normal)
		}
	}
}
