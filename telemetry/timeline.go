package telemetry

import (
	"fmt"
	"slices"
	"time"
)

// Decisions only increment counters. Once a second, and for each View, the increments are moved to the series.

// maxBehind is a duration in seconds. If the clock steps back by less, the time of the timeline stands still until the
// clock has caught up. If the clock steps back further, it is assumed to have been wrong before, and the counts of
// later steps are removed.
const maxBehind = 60

// timeline has the counts of one instance over time. The recorder's lock guards it.
type timeline struct {
	at      int64 // the time of the latest sample
	all     *series
	sampled column // the counts of all requests at the latest sample
	swept   int64

	totals totals              // the latest sample
	before [minuteSteps]totals // totals at the start of the latest steps, by the number of the step modulo minuteSteps

	upstreams []*countedUpstream

	events      []Event // the latest first
	unavailable int     // unavailable shards of the store, at the latest sample
}

// totals are the durations of all decisions since the start, and the number of decisions without the store.
type totals struct {
	step  int64
	took  durations
	local uint64
}

// sample moves the counts since the last sample to the series.
func (r *Recorder) sample(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked(now)
}

func (r *Recorder) sampleLocked(at time.Time) {
	r.tick(at.Unix())
	t := r.followLocked()
	for _, c := range t.rules {
		sum := c.read()
		if d := sum.minus(&c.sampled); !d.isZero() {
			c.sampled = sum
			if c.history == nil {
				c.history = newSeries(r.at)
			}
			c.history.add(r.at, &d)
		}
	}
	var sum column
	now := totals{step: recentStep(r.at)}
	for _, c := range *r.doors.Load() {
		for i := range c.cells {
			cell := &c.cells[i]
			for j := range cell.n {
				sum[j] += cell.n[j].Load()
			}
			sum[nearColumn] += cell.malformed.Load()
			sum[blockedColumn] += cell.blocked.Load()
			now.local += cell.local.Load()
			for j := range cell.took {
				now.took[j] += cell.took[j].Load()
			}
		}
	}
	if d := sum.minus(&r.sampled); !d.isZero() {
		r.sampled = sum
		r.all.add(r.at, &d)
	}
	if before := &r.before[now.step%minuteSteps]; before.step != now.step {
		*before = r.totals
		before.step = now.step
	}
	r.totals = now
	r.sampleLoads(t)
	for _, u := range r.upstreams {
		u.sample(r.at)
	}
	r.sweep(t)
}

// tick advances the time by a clock that may step back.
func (r *Recorder) tick(now int64) {
	if now < r.at && r.at-now <= maxBehind {
		now = r.at
	}
	r.at = now
	r.all.move(now)
	for _, u := range r.upstreams {
		u.history.move(now)
	}
}

// sweep removes the series that have no counts, once in each LongStep.
func (r *Recorder) sweep(t *table) {
	if longStep(r.at) == r.swept {
		return
	}
	r.swept = longStep(r.at)
	for _, c := range t.rules {
		if c.history == nil {
			continue
		}
		if c.history.move(r.at); c.history.idle() {
			c.history = nil
		}
	}
}

// lastMinute returns the durations of the decisions of the last minute, and the number of decisions without the
// store.
func (h *timeline) lastMinute() (took durations, local uint64) {
	first := h.totals
	for _, t := range h.before {
		if t.step > h.totals.step-minuteSteps && t.step <= first.step {
			first = t
		}
	}
	for i, n := range h.totals.took {
		took[i] = n - first.took[i]
	}
	return took, h.totals.local - first.local
}

const (
	maxEvents    = 100
	maxEventText = 500
	maxEventKind = 32
)

// Note adds an event to the Events of a [View]. It cuts long texts.
func (r *Recorder) Note(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(time.Now(), kind, text)
}

func (r *Recorder) noteLocked(at time.Time, kind, text string) {
	e := Event{At: at, Kind: clip(kind, maxEventKind), Text: clip(text, maxEventText), Instance: r.config.Instance}
	r.events = fewer(slices.Insert(r.events, 0, e))
}

// watchStore notes when shards of the store become unavailable or available.
func (r *Recorder) watchStore(s Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Unavailable == r.unavailable {
		return
	}
	was := r.unavailable
	r.unavailable = s.Unavailable
	text := "the shared store is available again"
	switch {
	case s.Shards > 1 && s.Unavailable > 0:
		text = fmt.Sprintf("%d of %d shards of the shared store are unavailable", s.Unavailable, s.Shards)
	case s.Unavailable > was:
		text = "the shared store is unavailable"
	}
	r.noteLocked(time.Now(), "circuit", text)
}
