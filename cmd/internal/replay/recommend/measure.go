package recommend

import (
	"context"
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/kernel"
)

// defaultMemory is the default maximum of the memory for states of subjects, in bytes.
const defaultMemory = 512 << 20

// The sizes of states in bytes, including the overhead of maps and the allocator.
const (
	subjectBytes  = 256
	burstBytes    = 8*rates + 160
	dayBytes      = 4*rates + 48
	evidenceBytes = 112
)

// gauge is a store that allows every request and measures bursts. The engine calls it like any store, so rules
// count the same requests under the same keys as they will for live traffic.
//
// If memory is too small for all subjects, gauge keeps only half of them, then a quarter, an eighth and so on, chosen
// by a hash of the subject. The kept subjects are a random sample of all subjects. So the confidence of a
// recommendation is the same as for a log that has only the kept subjects.
type gauge struct {
	rules map[string]*measured
	zone  *time.Location
	now   int64            // the time of the request that is being decided
	entry *accesslog.Entry // the entry of this request
	cost  int64            // the number of tokens in its response; -1 if requests are counted
	name  string           // the name of the client, if the log has no address

	day      int32 // days since the Unix epoch, in the zone
	dayBegin int64
	dayEnd   int64
	hour     int

	bytes, room int64
	halvings    int
}

// measured has the subjects of a rule.
type measured struct {
	subjects map[string]*subject // by their keys without the rule's name
	requests int64
	detailed bool // true if evidence of abuse is collected
}

type subject struct {
	key       string // the whole key
	name      string // the name of the client, if the log has no address
	hash      uint64
	requests  int64
	last      int64
	levels    *levels // nil while the subject has sent only one request, with the reservation 1 and the cost 1
	days      []day
	second    int64 // the second of the last request
	inSecond  int32
	perSecond int32 // the most requests in any second of the clock
	*evidence
}

// day counts the requests of a subject on one day.
type day struct {
	number   int32
	requests int32
	peaks    *peaks // nil if the only request is the subject's first, and its reservation and cost are both 1
}

// evidence describes the behavior of a subject, from its second request on.
type evidence struct {
	denied   int64 // 401, 403 or 404
	missing  int64 // 404
	failures int64 // 401 or 403 to a POST
	paths    [4]uint64
	hours    [24]uint16 // requests of the day by hour
	steady   bool       // the subject sent requests all day long on some day
}

// setRequest sets the request that the engine decides about next. The parameter tokens is the kind of tokens to limit,
// or "" to limit requests. If tokens are limited, the result is false for a response without a number of tokens or with
// a status other than 2xx.
func (g *gauge) setRequest(e *accesslog.Entry, name, tokens string) bool {
	g.entry, g.name, g.now, g.cost = e, name, max(g.now, e.Time), -1
	if tokens != "" {
		g.cost = e.Tokens.Of(tokens)
		if g.cost < 0 || e.Status/100 != 2 {
			return false
		}
	}
	if g.now >= g.dayEnd || g.now < g.dayBegin {
		t := time.UnixMicro(g.now).In(g.zone)
		begin := time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, g.zone)
		g.dayBegin = begin.UnixMicro()
		g.dayEnd = max(begin.AddDate(0, 0, 1).UnixMicro(), g.now+1)
		g.day = int32(time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC).Unix() / 86400)
	}
	g.hour = int(min((g.now-g.dayBegin)/int64(time.Hour/time.Microsecond), 23))
	return true
}

// Take implements [sluice.Store].
func (g *gauge) Take(_ context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	for i := range charges {
		receipts[i] = sluice.Receipt{Receipt: kernel.Receipt{Now: g.now, Fits: true}}
		if charges[i].Cost > 0 {
			reservation, cost := charges[i].Cost, charges[i].Cost
			if g.cost >= 0 {
				cost = g.cost
			}
			g.note(charges[i].Key, reservation, cost)
		}
	}
	return nil
}

func (g *gauge) note(key string, reservation, cost int64) {
	name, value, _ := strings.Cut(key, "/")
	r := g.rules[name]
	if r == nil || value == "!" { // the log has no client
		return
	}
	r.requests++
	s := r.subjects[value]
	if s == nil {
		hash := hashOf(value)
		if bits.TrailingZeros64(hash) < g.halvings {
			return
		}
		s = &subject{key: strings.Clone(key), name: strings.Clone(g.name), hash: hash}
		r.subjects[s.key[len(name)+1:]] = s
		g.bytes += subjectBytes + int64(len(key)+len(g.name))
	}
	g.count(s, reservation, cost)
	if r.detailed && s.requests > 1 {
		g.watch(s)
	}
	for g.bytes > g.room && g.halvings < 40 {
		g.halve()
	}
}

// count adds a request to the bursts of its subject. The reservation is the charge before the outcome of the request is
// known. The cost is the charge after that.
func (g *gauge) count(s *subject, reservation, cost int64) {
	today := len(s.days) - 1
	if today < 0 || s.days[today].number != g.day {
		s.days = append(s.days, day{number: g.day})
		g.bytes += dayBytes // including the peaks, which most days need
		today++
	}
	s.requests++
	s.days[today].requests++
	switch {
	case s.levels == nil && s.requests == 1 && cost == 1 && reservation == 1:
	case s.levels == nil:
		s.levels = new(levels)
		g.bytes += burstBytes
		if s.requests > 1 {
			s.levels.first()
		}
		fallthrough
	default:
		d := &s.days[today]
		if d.peaks == nil {
			d.peaks = new(peaks)
			if d.requests > 1 {
				*d.peaks = ones
			}
		}
		s.levels.add(g.now-s.last, reservation, cost, d.peaks)
	}
	s.last = g.now
	if second := g.now / 1e6; second != s.second {
		s.second, s.inSecond = second, 0
	}
	s.inSecond++
	s.perSecond = max(s.perSecond, s.inSecond)
}

// watch updates the evidence of a subject.
func (g *gauge) watch(s *subject) {
	v := s.evidence
	if v == nil {
		v = new(evidence)
		s.evidence = v
		g.bytes += evidenceBytes
	}
	e := g.entry
	switch e.Status {
	case 401, 403:
		v.denied++
		if string(e.Method) == "POST" {
			v.failures++
		}
	case 404:
		v.denied++
		v.missing++
	}
	h := hashOf(pathOf(string(e.Target)))
	v.paths[h>>6&3] |= 1 << (h & 63)
	if s.days[len(s.days)-1].requests == 1 {
		v.hours = [24]uint16{}
	}
	if v.hours[g.hour] < math.MaxUint16 {
		v.hours[g.hour]++
	}
	v.steady = v.steady || steady(&v.hours)
}

// steady reports whether requests came in more than 20 hours of a day, and no hour had more than three times the
// average.
func steady(hours *[24]uint16) bool {
	active, sum, most := 0, 0, 0
	for _, n := range hours {
		if n > 0 {
			active++
		}
		sum += int(n)
		most = max(most, int(n))
	}
	return active > 20 && most*24 <= 3*sum
}

// distinct estimates the number of different paths from the number of zero bits in paths (linear counting). It
// returns at most some 1,400.
func (v *evidence) distinct() float64 {
	empty := 256
	for _, w := range v.paths {
		empty -= bits.OnesCount64(w)
	}
	return 256 * math.Log(256/max(float64(empty), 1))
}

// halve drops half of the subjects, the same ones for all rules.
func (g *gauge) halve() {
	g.halvings++
	for _, r := range g.rules {
		for value, s := range r.subjects {
			if bits.TrailingZeros64(s.hash) >= g.halvings {
				continue
			}
			delete(r.subjects, value)
			g.bytes -= subjectBytes + int64(len(s.key)+len(s.name)) + dayBytes*int64(len(s.days))
			if s.levels != nil {
				g.bytes -= burstBytes
			}
			if s.evidence != nil {
				g.bytes -= evidenceBytes
			}
		}
	}
}

// hashOf returns a 64-bit hash of a text. It is the same in every run, so that a log always has the same
// recommendation.
func hashOf(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s)
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// before returns the peaks and the number of requests over all days before the day with the given number.
func (s *subject) before(number int32) (p *peaks, requests int64) {
	for i := range s.days {
		d := &s.days[i]
		if d.number >= number {
			break
		}
		requests += int64(d.requests)
		switch {
		case d.peaks == nil:
		case p == nil:
			p = d.peaks
		default:
			both := *p
			for i, x := range d.peaks {
				both[i] = max(both[i], x)
			}
			p = &both
		}
	}
	return p, requests
}
