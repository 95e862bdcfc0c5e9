// Package adaptivesim simulates upstreams in virtual time, behind the automatic limit of package adaptive and its
// rivals. It is in the program's module because the rivals need modules on which the library does not depend.
package adaptivesim

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/adaptive"
)

// A gate is a limit: a Limiter or a rival. The method enter returns nil if the request is refused.
type gate interface {
	enter(now time.Duration, c adaptive.Class) permit
}

type permit interface {
	// head reports that the head of the response has arrived, or that the client left before it.
	head(now time.Duration, o adaptive.Outcome)
	leave(now time.Duration)
}

// An upstream is a simulated server with a queue.
type upstream struct {
	workers  int
	takes    func(*rand.Rand) time.Duration // draws the time that a worker needs
	thrash   int                            // beyond so many requests under way, service times grow in proportion
	patience time.Duration                  // time until a client leaves
	body     time.Duration                  // time from the head of a response to its end
	notices  bool                           // whether abandoned requests leave the queue
}

// A phase is a load from a time on.
type phase struct {
	from   time.Duration
	rate   [3]float64    // requests a second by class
	slower float64       // factor of service times; 0 is 1
	away   int           // unavailable workers
	fails  time.Duration // time until a 503 that occupies no worker; 0: no failures
	part   float64       // fraction of the requests that fail; 0 is all
	cheap  float64       // fraction of the requests that take only 50 µs
}

type request struct {
	sent    time.Duration
	class   adaptive.Class
	service time.Duration
	permit  permit
	gate    int
	done    bool // answered or abandoned
}

type event struct {
	at   time.Duration
	kind int
	req  *request
}

const (
	evArrive = iota
	evComplete
	evAbandon
	evFail
	evEnd
)

// A bin counts the requests that arrived in one second, by class and result.
type bin struct {
	arrived, served, refused [3]int
	took                     []time.Duration
}

// A simulation is one run.
type simulation struct {
	upstream
	phases  []phase
	gates   []gate
	advance func(time.Duration)     // called with the virtual time of each event
	every   func(now time.Duration) // called after each event

	random *rand.Rand
	now    time.Duration
	events []event
	queue  []*request
	busy   int
	bins   []bin
}

func (s *simulation) push(e event) {
	s.events = append(s.events, e)
	for i := len(s.events) - 1; i > 0; {
		up := (i - 1) / 2
		if s.events[up].at <= s.events[i].at {
			break
		}
		s.events[up], s.events[i] = s.events[i], s.events[up]
		i = up
	}
}

func (s *simulation) pop() event {
	e, last := s.events[0], len(s.events)-1
	s.events[0] = s.events[last]
	s.events = s.events[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if s.events[c].at < s.events[least].at {
				least = c
			}
		}
		if least == i {
			return e
		}
		s.events[i], s.events[least] = s.events[least], s.events[i]
		i = least
	}
}

func (s *simulation) phase() (p phase) {
	for _, q := range s.phases {
		if q.from <= s.now {
			p = q
		}
	}
	return p
}

// run simulates until a time.
func (s *simulation) run(seed uint64, until time.Duration) {
	s.random = rand.New(rand.NewPCG(seed, 30))
	s.bins = make([]bin, int(until/time.Second)+1)
	s.push(event{at: 0, kind: evArrive})
	for s.now < until {
		e := s.pop()
		s.now = e.at
		if s.advance != nil {
			s.advance(s.now)
		}
		switch e.kind {
		case evArrive:
			s.arrive(e)
		case evComplete:
			s.complete(e.req)
		case evAbandon:
			s.abandon(e.req)
		case evFail:
			e.req.permit.head(s.now, adaptive.Failed)
			e.req.permit.leave(s.now)
		case evEnd:
			e.req.permit.leave(s.now)
		}
		if s.every != nil {
			s.every(s.now)
		}
	}
}

// arrive handles an arrival and draws the next one. After at most a second it draws again, because the rate may have
// changed.
func (s *simulation) arrive(e event) {
	p := s.phase()
	if e.req != nil {
		s.enter(e.req, p)
	}
	sum := p.rate[0] + p.rate[1] + p.rate[2]
	gap := time.Second
	if sum > 0 {
		gap = time.Duration(s.random.ExpFloat64() / sum * 1e9)
	}
	next := event{at: s.now + min(gap, time.Second), kind: evArrive}
	for _, q := range s.phases {
		if q.from > s.now && q.from < next.at {
			next.at, gap = q.from, time.Second
			break
		}
	}
	if gap < time.Second {
		class, at := adaptive.Sheddable, s.random.Float64()*sum
		for class < adaptive.Critical && at >= p.rate[class-1] {
			at -= p.rate[class-1]
			class++
		}
		next.req = &request{class: class, service: s.takes(s.random), sent: next.at, gate: s.random.IntN(1 << 20)}
		if p.cheap > 0 && s.random.Float64() < p.cheap {
			next.req.service = 50 * time.Microsecond
		}
	}
	s.push(next)
}

func (s *simulation) enter(r *request, p phase) {
	b := &s.bins[int(r.sent/time.Second)]
	b.arrived[r.class-1]++
	g := s.gates[r.gate%len(s.gates)]
	if r.permit = g.enter(s.now, r.class); r.permit == nil {
		b.refused[r.class-1]++
		return
	}
	if p.fails > 0 && (p.part == 0 || s.random.Float64() < p.part) {
		s.push(event{s.now + p.fails, evFail, r})
		return
	}
	s.push(event{s.now + s.patience, evAbandon, r})
	s.queue = append(s.queue, r)
	s.work()
}

// work assigns queued requests to idle workers.
func (s *simulation) work() {
	for s.busy < s.workers-s.phase().away && len(s.queue) > 0 {
		r := s.queue[0]
		s.queue = s.queue[1:]
		if r.done && s.notices {
			continue
		}
		took := float64(r.service) * cmp.Or(s.phase().slower, 1)
		if n := s.busy + len(s.queue) + 1; n > s.thrash {
			took *= float64(n) / float64(s.thrash)
		}
		s.busy++
		s.push(event{s.now + time.Duration(took), evComplete, r})
	}
}

func (s *simulation) complete(r *request) {
	s.busy--
	s.work()
	if r.done {
		return
	}
	r.done = true
	b := &s.bins[int(r.sent/time.Second)]
	b.served[r.class-1]++
	b.took = append(b.took, s.now-r.sent)
	r.permit.head(s.now, adaptive.OK)
	if s.body > 0 {
		s.push(event{s.now + s.body, evEnd, r})
		return
	}
	r.permit.leave(s.now)
}

func (s *simulation) abandon(r *request) {
	if r.done {
		return
	}
	r.done = true
	r.permit.head(s.now, adaptive.Abandoned)
	r.permit.leave(s.now)
}

// A result sums up the requests of a period.
type result struct {
	goodput float64    // answers in time, a second
	served  [3]float64 // percent of the arrivals by class
	p99     time.Duration
	refused [3]int
}

// result sums up the requests that arrived in a period.
func (s *simulation) result(from, to time.Duration) (r result) {
	var arrived, served [3]int
	var took []time.Duration
	for _, b := range s.bins[from/time.Second : to/time.Second] {
		for c := range 3 {
			arrived[c] += b.arrived[c]
			served[c] += b.served[c]
			r.refused[c] += b.refused[c]
		}
		took = append(took, b.took...)
	}
	slices.Sort(took)
	r.goodput = float64(len(took)) / (to - from).Seconds()
	for c := range 3 {
		r.served[c] = 100 * float64(served[c]) / math.Max(float64(arrived[c]), 1)
	}
	if n := len(took); n > 0 {
		r.p99 = took[n*99/100]
	}
	return r
}

// The following functions return distributions of service times with a mean.
func lognormal(mean time.Duration, sigma float64) func(*rand.Rand) time.Duration {
	scale := float64(mean) * math.Exp(-sigma*sigma/2)
	return func(r *rand.Rand) time.Duration { return time.Duration(scale * math.Exp(sigma*r.NormFloat64())) }
}

func exponential(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return time.Duration(float64(mean) * r.ExpFloat64()) }
}

func constant(mean time.Duration) func(*rand.Rand) time.Duration {
	return func(r *rand.Rand) time.Duration { return mean }
}

// tailed makes one request in ten take ten times as long, with the same mean.
func tailed(mean time.Duration) func(*rand.Rand) time.Duration {
	usual := lognormal(mean*10/19, 0.3)
	return func(r *rand.Rand) time.Duration {
		d := usual(r)
		if r.IntN(10) == 0 {
			d *= 10
		}
		return d
	}
}

// cached answers seven requests in ten in about a millisecond, with the same mean.
func cached(mean time.Duration) func(*rand.Rand) time.Duration {
	hit, miss := lognormal(time.Millisecond, 0.5), lognormal((mean*10-7*time.Millisecond)/3, 0.5)
	return func(r *rand.Rand) time.Duration {
		if r.IntN(10) < 7 {
			return hit(r)
		}
		return miss(r)
	}
}
