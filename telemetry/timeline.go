package telemetry

import (
	"fmt"
	"slices"
	"time"
)

// Decisions only add to counters. What was added since is put into the series once a second, and by
// whoever looks at them.

// A clock that steps back by less than this stands still until it has caught up. One that steps back
// further was wrong before, and what it has counted after that time is forgotten.
const maxBehind = 60

// timeline is what was counted over time. The recorder's lock guards it.
type timeline struct {
	at      int64 // the time of the latest sample
	all     *series
	sampled column // of all requests
	swept   int64

	// The last minute, by steps, is that of durations and of decisions without the store.
	paces [paceSteps]pace
	// What was counted before the first of them.
	took  durations
	local uint64

	events []Event
	away   int // shards of the store, when that was last looked at
}

// pace is what was counted in a step.
type pace struct {
	step  int64
	took  durations
	local uint64
}

const paceSteps = 7 // a minute, and the step that has begun

// sample puts what was counted since the last time into the series of now.
func (r *Recorder) sample(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked(now)
}

func (r *Recorder) sampleLocked(now time.Time) {
	r.tick(now.Unix())
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
	var took durations
	var local uint64
	for _, c := range *r.doors.Load() {
		for i := range c.cells {
			cell := &c.cells[i]
			for j := range cell.n {
				sum[j] += cell.n[j].Load()
			}
			sum[nearColumn] += cell.malformed.Load()
			sum[blockedColumn] += cell.blocked.Load()
			local += cell.local.Load()
			for j := range cell.took {
				took[j] += cell.took[j].Load()
			}
		}
	}
	if d := sum.minus(&r.sampled); !d.isZero() {
		r.sampled = sum
		r.all.add(r.at, &d)
	}
	step := recentStep(r.at)
	p := &r.paces[step%paceSteps]
	if p.step != step {
		*p = pace{step: step}
	}
	for i := range took {
		p.took[i] += took[i] - r.took[i]
	}
	p.local += local - r.local
	r.took, r.local = took, local
	r.sweep(t)
}

// tick makes it a time, by a clock that may step.
func (r *Recorder) tick(now int64) {
	if now < r.at && r.at-now <= maxBehind {
		now = r.at
	}
	r.at = now
	r.all.move(now)
}

// sweep forgets, once a step of the long ones, the series that have nothing in them.
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

// lastMinute returns the durations of decisions, and how many were made without the store.
func (h *timeline) lastMinute() (took durations, local uint64) {
	for i := range h.paces {
		p := &h.paces[i]
		if p.step <= recentStep(h.at)-paceSteps || p.step > recentStep(h.at) {
			continue
		}
		for j := range took {
			took[j] += p.took[j]
		}
		local += p.local
	}
	return took, local
}

const (
	maxEvents    = 100
	maxEventText = 500
	maxEventKind = 32
)

// Note adds an event to those that a [View] tells of. Of long texts it keeps the beginning.
func (r *Recorder) Note(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteLocked(time.Now(), kind, text)
}

func (r *Recorder) noteLocked(at time.Time, kind, text string) {
	r.events = append(r.events, Event{At: at, Kind: clip(kind, maxEventKind), Text: clip(text, maxEventText), Instance: r.config.Instance})
	if len(r.events) > maxEvents {
		slices.Reverse(r.events)
		r.events = fewer(r.events)
		slices.Reverse(r.events)
	}
}

// watchStore notes when shards of the store go away or come back.
func (r *Recorder) watchStore(s Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.Away == r.away {
		return
	}
	was := r.away
	r.away = s.Away
	text := "the shared store answers again"
	switch {
	case s.Shards > 1 && s.Away > 0:
		text = fmt.Sprintf("%d of %d shards of the shared store do not answer", s.Away, s.Shards)
	case s.Away > was:
		text = "the shared store does not answer"
	}
	r.noteLocked(time.Now(), "circuit", text)
}
