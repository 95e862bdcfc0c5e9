package telemetry

import "time"

// The usual rate of a rule is learned only from times in which the rule denied no more than usual, because a long
// attack must not become usual. The known time since the first request of the rule is divided into spans. In the
// last hour, a span is a minute long; before that, five minutes. A span is left out if it was unusual by the rate
// learned from earlier spans. If the rule denied only a small fraction in an unusual span, as a new rule may, the
// span is included in the usual rate of the same hour of the next day.

// usual is how much a rule usually denies, without denials by a block.
type usual struct {
	rate  float64 // denials a second; negative: unknown
	share float64 // denials as a fraction of all requests
}

// refusing is how much a rule denies in a certain period.
type refusing struct {
	rate float64 // denials a second
	// share is denials as a fraction of all requests, and ofRule as a fraction of the requests that the rule counted.
	share, ofRule float64
}

// Denials are unusual if they are at least unusualLeast a second, and unusualTimes as many as usual. Because denials
// grow with traffic, their fraction of all requests must also be unusualTimes the usual fraction, or
// large. While the usual rate is unknown, a large fraction of all requests or of the rule's requests is unusual.
const (
	unusualTimes = 3
	unusualLeast = 0.2
	muchRefused  = 0.1
)

// exceeded reports whether a rule denies more than usual.
func (u usual) exceeded(now refusing) bool {
	switch {
	case now.rate < unusualLeast:
		return false
	case u.rate < 0:
		return max(now.share, now.ofRule) >= muchRefused
	}
	return now.rate >= unusualTimes*u.rate && now.rate > u.rate && (now.share >= muchRefused || now.share >= unusualTimes*u.share)
}

const (
	// Denials that started less than this long ago are not usual yet.
	unusualFor = 10 * time.Minute
	// The usual rate is yesterday's rate at this hour, if enough of that hour is known and was not unusual itself.
	aroundHour    = 30 * time.Minute
	aDay          = 24 * time.Hour
	enoughOfHour  = 30 * time.Minute
	enoughOfUsual = 15 * time.Minute
)

// spans is the known time. Times are in seconds.
type spans struct {
	list []span
	long int // the number of spans with the length LongStep; all later spans are a minute long
	now  int64

	// calm and small have, for each span, the sums of all earlier spans. calm leaves out unusual spans. small leaves
	// out only the unusual spans in which the rule denied a large fraction. The memory is reused for each rule.
	calm, small []spanned
}

type span struct {
	from, to int64 // from is the start of the known part of the span
	step     int64 // the first step of the span
	total    uint64
}

// spanned has the counts of several spans.
type spanned struct{ refused, total, seconds float64 }

func (s *spanned) add(o spanned) {
	s.refused += o.refused
	s.total += o.total
	s.seconds += o.seconds
}

func (s spanned) minus(o spanned) spanned {
	return spanned{s.refused - o.refused, s.total - o.total, s.seconds - o.seconds}
}

const minuteSpan = int64(time.Minute / Step) // steps

// spansOf divides the time with counts into spans, without the last ten minutes, in which something unusual may
// have started.
func spansOf(all *series, since time.Time, at int64) *spans {
	out := &spans{now: at}
	const minute, long = 60, int64(LongStep / time.Second)
	end := at - int64(unusualFor/time.Second)
	hour := (all.recent.first()*int64(Step/time.Second) + long - 1) / long * long // spans of a minute start here
	hour = max(hour, all.days.first()*long)
	add := func(from, to, step int64, counts column) {
		if to <= since.Unix() || to > end {
			return
		}
		total := Counts(counts[:Outcomes])
		out.list = append(out.list, span{from: max(from, since.Unix()), to: to, step: step, total: total.Total()})
	}
	for step := all.days.first(); step*long < hour; step++ {
		add(step*long, step*long+long, step, sumOf(&all.days, step, 1))
	}
	out.long = len(out.list)
	for from := hour; from+minute <= end; from += minute {
		step := recentStep(from)
		add(from, from+minute, step, sumOf(&all.recent, step, minuteSpan))
	}
	out.calm, out.small = make([]spanned, len(out.list)+1), make([]spanned, len(out.list)+1)
	return out
}

// usual returns the usual rate of a rule now. s is nil for a rule without counts.
func (p *spans) usual(s *series) usual {
	learned, begun := 0, false
	for i := range p.list {
		one := &p.list[i]
		for learned < i && p.list[learned].to <= one.from-int64(unusualFor/time.Second) {
			learned++
		}
		p.calm[i+1], p.small[i+1] = p.calm[i], p.small[i]
		asked, refused := s.countIn(one, i < p.long)
		if begun = begun || asked > 0; !begun {
			continue
		}
		counted := spanned{refused, max(float64(one.total), asked), float64(one.to - one.from)}
		now := refusing{refused / counted.seconds, refused / max(counted.total, 1), refused / max(asked, 1)}
		unusual := p.at(one.from, learned).exceeded(now)
		if !unusual {
			p.calm[i+1].add(counted)
		}
		if !unusual || now.share < muchRefused {
			p.small[i+1].add(counted)
		}
	}
	return p.at(p.now, len(p.list))
}

// at returns how much was usual at a time. It learns this from the first spans; the parameter learned is their
// number.
func (p *spans) at(now int64, learned int) usual {
	sum := p.calm[learned]
	if learned > 0 && p.long > 0 {
		around := int64(aroundHour / time.Second)
		yesterday := now - int64(aDay/time.Second)
		to := min(p.longAt(yesterday+around), learned)
		if of := p.small[to].minus(p.small[min(p.longAt(yesterday-around), to)]); of.seconds >= enoughOfHour.Seconds() {
			sum = of
		}
	}
	if sum.seconds < enoughOfUsual.Seconds() {
		return usual{rate: -1}
	}
	return usual{sum.refused / sum.seconds, sum.refused / max(sum.total, 1)}
}

// longAt returns the index of the first long span that does not begin before a time.
func (p *spans) longAt(at int64) int {
	long := int64(LongStep / time.Second)
	first := p.list[0].to - long
	return int(min(max((at-first+long-1)/long, 0), int64(p.long)))
}

// countIn returns how many requests a rule counted in a span, and how many of them it denied other than by a block.
func (s *series) countIn(one *span, long bool) (asked, refused float64) {
	if s == nil {
		return 0, 0
	}
	sum := sumOf(&s.days, one.step, 1)
	if !long {
		sum = sumOf(&s.recent, one.step, minuteSpan)
	}
	all := Counts(sum[:Outcomes])
	return float64(all.Total()), float64(sum[Deny] - min(sum[blockedColumn], sum[Deny]))
}
