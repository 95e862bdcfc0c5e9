package telemetry

import (
	"fmt"
	"strings"
	"time"
)

// Alerts are based on the requests of the last minute. If these are too few, earlier requests are included, back to
// ten minutes.
const (
	upstreamLeast = 20 // requests

	// An upstream fails if at least this fraction of its requests fails, and at least this number.
	failingShare = 0.1
	failingLeast = 10

	// An upstream is slow if more than half of its requests wait longer than slowTimes times the usual median, or
	// if a fraction of more than slowTail waits longer than slowTimes times the usual 99th percentile.
	slowTimes    = 3
	slowShortest = 20 * time.Millisecond
	slowTail     = 0.05
	slowLeast    = 10

	// An upstream is stuck if upstreamLeast requests wait, and for a minute none was answered, timed out or was
	// canceled, unless such waits are usual.
	stuckUsually = 20 * time.Second

	usualLeast  = 60                        // requests that the usual latency needs at least
	usualWithin = int(time.Hour / LongStep) // steps over which the usual latency is measured
)

// fraction is a number of requests out of all.
type fraction struct{ of, all uint64 }

func (f fraction) share() float64 { return float64(f.of) / float64(max(f.all, 1)) }

func failed(c *UpstreamCounts) fraction { return fraction{c.Failures(), c.Ended()} }

// slower returns a function that returns the fraction of requests that waited longer than a time, which is rounded up
// to a bound of the histogram.
func slower(than time.Duration) func(*UpstreamCounts) fraction {
	first := upstreamBucket(than) + 1
	return func(c *UpstreamCounts) (f fraction) {
		for i, n := range c.waits {
			if f.all += n; i >= first {
				f.of += n
			}
		}
		return f
	}
}

// slowness is a criterion for a slow upstream: more than a certain fraction of its requests waits longer than a
// certain time.
type slowness struct {
	than  time.Duration // the time
	share float64       // the fraction
	text  string        // the usual latency in words
}

// slownesses returns the criteria for a usual latency, or none if it is based on too few requests.
func slownesses(usual Latency) []slowness {
	if usual.Count < usualLeast {
		return nil
	}
	all := []slowness{{max(slowTimes*usual.P50, slowShortest), 0.5, "half of them wait at most " + waited(usual.P50)}}
	if usual.Count >= 100/slowTail {
		all = append(all, slowness{max(slowTimes*usual.P99, slowShortest), slowTail, "99 % of them wait at most " + waited(usual.P99)})
	}
	return all
}

func (s *slowness) exceeded(f fraction) bool { return f.of >= slowLeast && f.share() > s.share }

// usual computes u.Usual. Slow steps are left out, because otherwise the latency of an upstream that stays slow would
// soon be the usual one.
func (u *Upstream) usual() Latency {
	var calm []*UpstreamCounts // at most usualWithin steps
	var sum UpstreamCounts
	var criteria []slowness
	last := len(u.long) - 1 - int(unusualFor/LongStep) // the present step and ten minutes are left out
	for i := range u.long[:max(last, 0)] {
		c := &u.long[i]
		if c.waits == ([upstreamBuckets]uint64{}) || isSlow(c, criteria) {
			continue
		}
		calm = append(calm, c)
		sum.Add(c)
		if len(calm) > usualWithin {
			for b, n := range calm[0].waits {
				sum.waits[b] -= n
			}
			calm = calm[1:]
		}
		criteria = slownesses(sum.Latency())
	}
	return sum.Latency()
}

func isSlow(c *UpstreamCounts, criteria []slowness) bool {
	for i := range criteria {
		if f := slower(criteria[i].than)(c); f.share() > criteria[i].share {
			return true
		}
	}
	return false
}

// lately returns the fraction in the last minute, and the length of the time that the fraction covers. If the last
// minute has too few requests, the fraction covers more time, up to ten minutes.
func (u *Upstream) lately(of func(*UpstreamCounts) fraction) (sum fraction, lasted time.Duration) {
	for i := 0; i < min(len(u.Recent), latelySteps) && (i < minuteSteps || sum.all < upstreamLeast); i++ {
		f := of(&u.Recent[len(u.Recent)-1-i])
		sum.of, sum.all = sum.of+f.of, sum.all+f.all
		lasted = time.Duration(max(i, minuteSteps-1)) * Step
	}
	return sum, lasted
}

// upstreamSince estimates when the fraction rose above share. It returns the time from which the sum of the excess
// over share, up to now, is largest.
func (v *View) upstreamSince(u *Upstream, of func(*UpstreamCounts) fraction, share float64) time.Time {
	at, most, excess := v.At, 0.0, 0.0
	walk := func(steps []UpstreamCounts, step time.Duration, from int) {
		for i := from; i < len(steps); i++ {
			f := of(&steps[len(steps)-1-i])
			if excess += float64(f.of) - share*float64(f.all); excess > most {
				at, most = stepTime(v.At, step, i), excess
			}
		}
	}
	walk(u.Recent, Step, 0)
	walk(u.long, LongStep, int(RecentSteps*Step/LongStep)+1)
	return later(at, v.Since)
}

// upstreamFails returns the alert for an upstream that fails a large part of its requests.
func (v *View) upstreamFails(u *Upstream) *Headline {
	f, lasted := u.lately(failed)
	if f.all < upstreamLeast || f.of < failingLeast || f.share() < failingShare {
		return nil
	}
	h := &Headline{Level: Bad, Upstream: u.Name, Since: v.upstreamSince(u, failed, f.share()/2)}
	h.Text = fmt.Sprintf("Since %s upstream %s fails %s of its requests: of %s in the last %s, %s.",
		v.clock(h.Since), plain(u.Name), percent(f.share()), grouped(f.all), within(lasted), u.reasons(lasted))
	return h
}

// reasons returns the numbers of the requests that failed in the latest period of the given length, by reason, as text.
func (u *Upstream) reasons(length time.Duration) string {
	sum := u.Last(int(length/Step) + 1)
	var all []string
	add := func(n uint64, what string) {
		if n > 0 {
			all = append(all, grouped(n)+" "+what)
		}
	}
	add(sum.Statuses[StatusClasses-1], "got a status of 5xx")
	for kind, what := range errorWords {
		if UpstreamError(kind) != CanceledError {
			add(sum.Errors[kind], what)
		}
	}
	return strings.Join(all, ", ")
}

var errorWords = [UpstreamErrors]string{
	"got no connection", "got no TLS", "timed out", "lost the connection", "got a malformed response", "were canceled", "failed otherwise",
}

// within describes the time from d ago until now.
func within(d time.Duration) string {
	if d <= time.Minute {
		return "minute"
	}
	return fmt.Sprintf("%d minutes", (d+time.Minute-1)/time.Minute)
}

// waited returns a waiting time as text.
func waited(d time.Duration) string {
	if d >= time.Second {
		return short(d.Seconds()) + " s"
	}
	return short(float64(d)/float64(time.Millisecond)) + " ms"
}

// upstreamStuck returns the alert for an upstream that does not answer its waiting requests.
func (v *View) upstreamStuck(u *Upstream) *Headline {
	silent := 0
	for silent < len(u.Recent) && u.Recent[len(u.Recent)-1-silent].waits == ([upstreamBuckets]uint64{}) {
		silent++
	}
	if u.InFlight < upstreamLeast || silent < minuteSteps || u.Usual.Count < usualLeast || u.Usual.P99 > stuckUsually {
		return nil
	}
	h := &Headline{Level: Bad, Upstream: u.Name, Since: later(stepTime(v.At, Step, silent-1), v.Since)}
	h.Text = fmt.Sprintf("Since %s upstream %s has not responded, and %s wait (usually 99 %% wait at most %s).",
		v.clock(h.Since), plain(u.Name), number(u.InFlight, "request"), waited(u.Usual.P99))
	return h
}

// upstreamSlow returns the alert for an upstream that is slower than usual.
func (v *View) upstreamSlow(u *Upstream) *Headline {
	if h := v.upstreamStuck(u); h != nil {
		return h
	}
	for _, s := range slownesses(u.Usual) {
		f, lasted := u.lately(slower(s.than))
		if f.all < upstreamLeast || !s.exceeded(f) {
			continue
		}
		h := &Headline{Level: Bad, Upstream: u.Name, Since: v.upstreamSince(u, slower(s.than), f.share()/2)}
		h.Text = fmt.Sprintf("Since %s upstream %s is slow: %s of its %s in the last %s waited more than %s for the head of the response (usually %s).",
			v.clock(h.Since), plain(u.Name), percent(f.share()), number(f.all, "request"), within(lasted), waited(s.than), s.text)
		return h
	}
	return nil
}
