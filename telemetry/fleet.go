package telemetry

import (
	"bytes"
	"context"
	"sync"
	"time"
)

// Fleet joins what instances have seen.
type Fleet struct {
	Recorder *Recorder
	Board    Board // nil: there is only this one
	// Store returns how the store of this instance is doing. May be nil. Store.Local is counted here.
	Store func() Store
	// Refusals are those that this instance keeps, for the others to find. May be nil.
	Refusals *Refusals

	mu     sync.Mutex
	view   *View
	looked time.Time // when somebody last wanted a view
	others map[string]*instance
	ended  bool          // one of them has, and its last history is to be read
	who    fleetSubjects // of view
	joined time.Time     // when who was made

	faults     int       // in a row; of Run's
	refusals   uint64    // how many had been kept when they were last posted
	refusalsAt time.Time // when that was
}

// instance is what another one has said.
type instance struct {
	now, history, subjects []byte // parts; nil: nothing
	head                   head   // of now, or else of history
	seen                   time.Time
	left                   bool      // it has said that it ends
	changed                time.Time // when its policy was first heard of
}

const (
	sampleEvery   = time.Second
	postEvery     = 2 * time.Second
	subjectsEvery = 5 * time.Second
	historyEvery  = time.Minute
	// While nobody looks, others are read less often.
	idleEvery = 10 * time.Second
	idleAfter = time.Minute

	// told is what the posts between those of all that there is tell of: longer than it takes
	// everybody to read that.
	told = 6 * time.Minute

	boardFor   = 1500 * time.Millisecond // the longest wait for the board
	leaveFor   = 500 * time.Millisecond  // and of whoever ends
	staleAfter = 15 * time.Second
	// Instances do not change their policies at the same moment.
	differsAfter = 30 * time.Second
	goneAfter    = 10 * time.Minute
	// What an instance has counted outlives it, so that yesterday is known after a deployment.
	historyFor = 48 * time.Hour
	// A large post of the last minutes is left less often, so that few take more than this a second.
	bytesPerSecond = 16 << 10
	maxPostEvery   = 8 * time.Second
)

// Run posts what this instance has seen, and reads what others have, until the context ends. Then it says
// that it has ended, for which it takes half a second at most.
func (f *Fleet) Run(ctx context.Context) {
	var talking sync.WaitGroup
	defer talking.Wait()
	if f.Board != nil {
		talking.Go(func() { f.talk(ctx) })
	}
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	for {
		f.Recorder.sample(time.Now())
		if f.Store != nil {
			f.Recorder.watchStore(f.Store())
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// talk posts and reads until the context ends. A board that is away is tried again, and nobody
// waits for it but this.
func (f *Fleet) talk(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	var post, history, who, refusals, read, readHistory schedule
	for {
		now := time.Now()
		var err error
		try := func(due *schedule, every time.Duration, do func(context.Context) error) {
			if err != nil || !due.is(now, every) {
				return
			}
			limited, cancel := context.WithTimeout(ctx, boardFor)
			defer cancel()
			err = do(limited)
		}
		try(&history, historyEvery, f.postHistory)
		try(&post, postEvery, func(ctx context.Context) error {
			said := f.Recorder.said(now, f.store(), told)
			post.putOff(time.Duration(len(said)) * time.Second / bytesPerSecond)
			return f.Board.Post(ctx, nowPart, f.Recorder.id, said, goneAfter)
		})
		try(&who, subjectsEvery, f.postSubjects)
		try(&refusals, postEvery, func(ctx context.Context) error { return f.postRefusals(ctx, &refusals) })
		every, everyHistory := postEvery, historyEvery
		if !f.watched(now) {
			every, everyHistory = idleEvery, 2*historyEvery
		}
		try(&read, every, func(ctx context.Context) error {
			if err := f.read(ctx, nowPart); err != nil {
				return err
			}
			return f.read(ctx, subjectsPart)
		})
		if f.haveEnded() {
			readHistory = schedule{}
		}
		try(&readHistory, everyHistory, func(ctx context.Context) error { return f.read(ctx, historyPart) })
		f.noteFault(ctx, err)
		select {
		case <-ctx.Done():
			f.leave(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
		}
	}
}

// leave tells the others that this instance has ended: all that it has counted, and then nothing.
func (f *Fleet) leave(ctx context.Context) {
	if f.faults > 0 {
		return // the board is away
	}
	ctx, cancel := context.WithTimeout(ctx, leaveFor)
	defer cancel()
	if f.postHistory(ctx) == nil {
		_ = f.Board.Post(ctx, nowPart, f.Recorder.id, nil, goneAfter) // or else it falls silent
	}
}

// schedule is when something was last done, by a clock that may step.
type schedule struct {
	next time.Time
	off  time.Duration // how long it was put off
}

// is reports whether it is time to do it again, and notes that it is done.
func (s *schedule) is(now time.Time, every time.Duration) bool {
	if wait := s.next.Sub(now); wait > 0 && wait <= every+s.off {
		return false
	}
	s.off = 0
	s.next = now.Add(every - sampleEvery/2) // the ticker is not exact
	return true
}

// putOff puts off the next time of what takes so long if it is not to be too much.
func (s *schedule) putOff(takes time.Duration) {
	off := min(max(takes-postEvery, 0), maxPostEvery)
	s.next, s.off = s.next.Add(off), s.off+off
}

// faultsNoted is how many failures in a row make an event.
const faultsNoted = 3

func (f *Fleet) noteFault(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil && f.faults >= faultsNoted:
		f.Recorder.Note("fleet", "the numbers of other instances are there again")
		f.faults = 0
	case err == nil:
		f.faults = 0
	default:
		if f.faults++; f.faults == faultsNoted {
			f.Recorder.Note("fleet", "the numbers of other instances cannot be exchanged: "+err.Error())
		}
	}
}

// haveEnded reports whether others have since it was asked.
func (f *Fleet) haveEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended := f.ended
	f.ended = false
	return ended
}

// watched reports whether somebody looks at views.
func (f *Fleet) watched(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.looked.IsZero() && now.Sub(f.looked) < idleAfter
}

func (f *Fleet) store() (s Store) {
	if f.Store != nil {
		s = f.Store()
	}
	return s
}

func (f *Fleet) postHistory(ctx context.Context) error {
	return f.Board.Post(ctx, historyPart, f.Recorder.id, f.Recorder.said(time.Now(), f.store(), 0), historyFor)
}

func (f *Fleet) postSubjects(ctx context.Context) error {
	if f.Recorder.subjects == nil {
		return nil
	}
	said := f.Recorder.subjects.export(time.Now())
	if said == nil {
		return nil
	}
	return f.Board.Post(ctx, subjectsPart, f.Recorder.id, said, goneAfter)
}

// said returns a post of what was seen in the last while, or of all if that is 0.
func (r *Recorder) said(now time.Time, store Store, last time.Duration) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked(now)
	h := r.head(now, store)
	if last > 0 {
		from := r.at - int64(last.Seconds())
		h.fromRecent, h.fromLong = recentStep(from), longStep(from)
	}
	for len(h.events) > 0 && last > 0 && now.Sub(h.events[0].At) > last {
		h.events = h.events[1:]
	}
	said := appendSeries(appendHead(nil, &h), "", r.all, &h)
	for _, c := range r.table.Load().rules {
		if c.history == nil {
			continue
		}
		before := len(said)
		if said = appendSeries(said, c.name, c.history, &h); len(said) > maxPost {
			return said[:before]
		}
	}
	return said
}

// head returns what is to be said of this instance.
func (r *Recorder) head(now time.Time, store Store) head {
	took, local := r.lastMinute()
	store.Local = local
	return head{
		id: r.id, name: r.config.Instance, version: r.config.Version, policy: r.engine.Policy().Fingerprint(),
		started: r.started, at: now, store: store, took: took.latency(), events: r.events,
	}
}

// read reads a part of what others have said.
func (f *Fleet) read(ctx context.Context, part string) error {
	posted, err := f.Board.Posted(ctx, part)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hear(part, posted, time.Now())
	return nil
}

func (f *Fleet) hear(part string, posted map[string][]byte, now time.Time) {
	if f.others == nil {
		f.others = make(map[string]*instance)
	}
	for id, said := range posted {
		if id == f.Recorder.id {
			continue
		}
		if part == nowPart && len(said) == 0 {
			if o := f.others[id]; o != nil && !o.left { // its history says what it has counted since
				o.left, f.ended = true, true
			}
			continue
		}
		if part == subjectsPart {
			if o := f.others[id]; o != nil && !bytes.Equal(o.subjects, said) && make(fleetSubjects).add(said) == nil {
				o.subjects = said
			}
			continue
		}
		h, err := readPost(said, 0, 0, func(string) *series { return nil })
		if err != nil || h.id != id {
			continue // of another version, or of somebody else
		}
		o := f.others[id]
		if o == nil {
			o = &instance{seen: earlier(h.at, now)}
			f.others[id] = o
		}
		if part == historyPart {
			if o.left && !h.at.Before(o.head.at) {
				o.now = nil // that is older
			}
			if o.history = said; o.now == nil {
				o.head = h
			}
			continue
		}
		if o.now == nil || h.policy != o.head.policy {
			o.changed = now
		}
		if o.now != nil && !h.at.Equal(o.head.at) {
			o.seen = now
		}
		o.now, o.head, o.left = said, h, false
	}
	for id, o := range f.others {
		if _, still := posted[id]; still {
			continue
		}
		switch part {
		case nowPart:
			o.now = nil
		case historyPart:
			o.history = nil
		default:
			o.subjects = nil
		}
		if o.now == nil && o.history == nil {
			delete(f.others, id)
		}
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Find returns the key of a subject by its ID, as it was sent, if a View of the last hour had it: see [Subject]
// and [policy.Engine.SubjectOf].
func (f *Fleet) Find(id string) (key string, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.who == nil {
		return "", false // nobody has looked yet
	}
	return f.who.find(id, f.Recorder.engine.Policy())
}
