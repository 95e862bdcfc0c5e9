package telemetry

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// Fleet adds up the counts of several instances.
type Fleet struct {
	Recorder *Recorder
	Board    Board // nil if this is the only instance
	// Store returns the state of this instance's store. The Fleet itself sets the field Local of this state. If
	// Store is nil, the state is unknown.
	Store func() Store
	// Refusals has the denials that this instance keeps, so that the other instances can find them. It may be nil.
	Refusals *Refusals

	mu       sync.Mutex
	view     *View
	viewedAt time.Time // when a view was last requested
	others   map[string]*instance
	ended    map[string]bool // instances that have posted that they end
	subjects fleetSubjects
	joinedAt time.Time // when subjects was made

	// Only the goroutine of exchange uses these fields.
	faults     int       // failures in a row
	refusals   uint64    // how many denials had ever been kept at the time refusalsAt
	refusalsAt time.Time // when the denials were last posted
}

// instance is another instance.
type instance struct {
	now, history []byte            // its posts of counts; nil: unknown
	posts        map[string][]byte // its other posts, by part

	head      head // the head of instance.now or, if that is nil, of instance.history
	seenAt    time.Time
	changedAt time.Time // when its present policy was first read
}

const (
	sampleEvery   = time.Second
	postEvery     = 2 * time.Second
	subjectsEvery = 5 * time.Second
	historyEvery  = time.Minute
	// While no view is requested, the posts of others are read less often.
	idleEvery = 10 * time.Second
	idleAfter = time.Minute

	// nowFor is the time that a post of the last minutes covers. It is longer than the time between two
	// readings of the whole history.
	nowFor = 6 * time.Minute

	boardFor   = 1500 * time.Millisecond // the longest wait for the board
	leaveFor   = 500 * time.Millisecond  // the same for an instance that ends
	staleAfter = 15 * time.Second
	// A new policy needs some seconds to reach all instances.
	differsAfter = 30 * time.Second
	goneAfter    = 10 * time.Minute
	// The counts of an instance outlive it, so that yesterday's counts are known after a deployment.
	historyFor = 48 * time.Hour
	// Large posts are posted less often, so that posts seldom exceed this rate.
	bytesPerSecond = 16 << 10
	maxPostEvery   = 10 * time.Second
)

// Run posts the counts of this instance and reads the counts of the other instances until the context ends. Then it
// posts that this instance has ended, which takes at most half a second.
func (f *Fleet) Run(ctx context.Context) {
	var exchanging sync.WaitGroup
	defer exchanging.Wait()
	if f.Board != nil {
		exchanging.Go(func() { f.exchange(ctx) })
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

// exchange posts and reads until the context ends. Only exchange and FindRefusals wait for the board.
func (f *Fleet) exchange(ctx context.Context) {
	ticker := time.NewTicker(sampleEvery)
	defer ticker.Stop()
	tasks := f.tasks()
	for {
		f.noteFault(ctx, f.runDue(ctx, tasks))
		select {
		case <-ctx.Done():
			f.leave(context.WithoutCancel(ctx))
			return
		case <-ticker.C:
		}
	}
}

// task is a periodic task.
type task struct {
	every, idle time.Duration // idle is the interval while no view is requested
	do          func(context.Context) (posted int, err error)
	doneAt      time.Time
	pause       time.Duration // the shortest time until the next run, after a large post
}

func (f *Fleet) tasks() []*task {
	return []*task{
		{every: historyEvery, do: f.postHistory},
		{every: postEvery, do: f.postNow},
		{every: subjectsEvery, do: f.postSubjects},
		{every: subjectsEvery, do: f.postCosts},
		{every: subjectsEvery, do: f.postLoads},
		{every: postEvery, do: f.postRefusals},
		{every: postEvery, idle: idleEvery, do: f.readNow},
		{every: historyEvery, idle: 2 * historyEvery, do: f.readHistory},
	}
}

// runDue runs the tasks that are due, up to the first failure.
func (f *Fleet) runDue(ctx context.Context, tasks []*task) error {
	for _, t := range tasks {
		now := time.Now()
		every := max(t.every, t.pause)
		if !f.watched(now) {
			every = max(every, t.idle)
		}
		if now.Sub(t.doneAt) < every-sampleEvery/2 { // the ticker is not exact
			continue
		}
		t.doneAt = now
		limited, cancel := context.WithTimeout(ctx, boardFor)
		posted, err := t.do(limited)
		cancel()
		if err != nil {
			return err
		}
		t.pause = min(time.Duration(posted)*time.Second/bytesPerSecond, maxPostEvery)
	}
	return nil
}

// leave posts all counts of this instance, and then that it has ended.
func (f *Fleet) leave(ctx context.Context) {
	if f.faults > 0 {
		return // the board is unavailable
	}
	ctx, cancel := context.WithTimeout(ctx, leaveFor)
	defer cancel()
	for _, post := range []func(context.Context) (int, error){f.postHistory, f.postCosts, f.postLoads} {
		if _, err := post(ctx); err != nil {
			return
		}
	}
	_ = f.Board.Post(ctx, nowPart, f.Recorder.id, nil, goneAfter) // if it fails, the others see a stale instance
}

// faultsNoted is the number of failures in a row that make an event.
const faultsNoted = 3

func (f *Fleet) noteFault(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		if f.faults >= faultsNoted {
			f.Recorder.Note("fleet", "data from other instances is available again")
		}
		f.faults = 0
	default:
		if f.faults++; f.faults == faultsNoted {
			f.Recorder.Note("fleet", "cannot exchange data with other instances: "+err.Error())
		}
	}
}

// watched reports whether views are requested.
func (f *Fleet) watched(now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.viewedAt.IsZero() && now.Sub(f.viewedAt) < idleAfter
}

func (f *Fleet) store() (s Store) {
	if f.Store != nil {
		s = f.Store()
	}
	return s
}

func (f *Fleet) postNow(ctx context.Context) (posted int, err error) {
	post := f.Recorder.post(time.Now(), f.store(), nowFor)
	return len(post), f.Board.Post(ctx, nowPart, f.Recorder.id, post, goneAfter)
}

// postHistory posts all series. It reports no size, since it is seldom called.
func (f *Fleet) postHistory(ctx context.Context) (posted int, err error) {
	return 0, f.Board.Post(ctx, historyPart, f.Recorder.id, f.Recorder.post(time.Now(), f.store(), 0), historyFor)
}

func (f *Fleet) postSubjects(ctx context.Context) (posted int, err error) {
	if f.Recorder.subjects == nil {
		return 0, nil
	}
	post := f.Recorder.subjects.export(time.Now())
	if post == nil {
		return 0, nil
	}
	return 0, f.Board.Post(ctx, subjectsPart, f.Recorder.id, post, goneAfter)
}

func (f *Fleet) postCosts(ctx context.Context) (posted int, err error) {
	return f.postRules(ctx, costsPart, f.Recorder.postedCosts())
}

func (f *Fleet) postLoads(ctx context.Context) (posted int, err error) {
	return f.postRules(ctx, loadsPart, f.Recorder.postedLoads())
}

// postRules posts the output of the function postOf, unless it is nil.
func (f *Fleet) postRules(ctx context.Context, part string, post []byte) (posted int, err error) {
	if post == nil {
		return 0, nil
	}
	return len(post), f.Board.Post(ctx, part, f.Recorder.id, post, historyFor)
}

// post returns a post of the counts of the latest period, which has the given length. If the length is 0, the post has
// all counts.
func (r *Recorder) post(now time.Time, store Store, length time.Duration) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sampleLocked(now)
	h := r.head(now, store)
	if length > 0 {
		from := r.at - int64(length.Seconds())
		h.FromRecent, h.FromLong = recentStep(from), longStep(from)
	}
	if old := slices.IndexFunc(h.Events, func(e Event) bool { return now.Sub(e.At) > length }); old >= 0 && length > 0 {
		h.Events = h.Events[:old]
	}
	post := appendSeries(appendHead(nil, &h), "", r.all, &h)
	for _, u := range r.upstreams {
		post = appendTimed(post, upstreamPrefix+u.stats.name, u.history, &h)
	}
	return appendRules(post, r.table.Load().rules, func(dst []byte, c *ruleCounters) []byte {
		if c.history == nil {
			return dst
		}
		return appendSeries(dst, c.name, c.history, &h)
	})
}

// head returns the state of this instance.
func (r *Recorder) head(now time.Time, store Store) head {
	took, local := r.lastMinute()
	store.Local = local
	return head{
		Instance: Instance{
			Name: r.config.Instance, Version: r.config.Version, Policy: r.engine.Policy().Fingerprint(),
			Started: r.started, Store: store, Took: took.latency(), InFlight: r.inFlight(),
		},
		ID: r.id, At: now, Events: r.events,
	}
}

func (f *Fleet) readNow(ctx context.Context) (posted int, err error) {
	ended, err := f.read(ctx, nowPart)
	for _, part := range []string{subjectsPart, costsPart, loadsPart} {
		if err == nil {
			_, err = f.read(ctx, part)
		}
	}
	if err == nil && ended {
		_, err = f.read(ctx, historyPart)
	}
	return 0, err
}

func (f *Fleet) readHistory(ctx context.Context) (posted int, err error) {
	_, err = f.read(ctx, historyPart)
	return 0, err
}

// read reads the posts of the other instances in a part. It reports whether an instance has ended since the last call.
// If so, the caller has to read the part historyPart, because the last post of the ended instance in that part has
// counts that were in no other post.
func (f *Fleet) read(ctx context.Context, part string) (ended bool, err error) {
	posts, err := f.Board.Posted(ctx, part)
	if err != nil {
		return false, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.others == nil {
		f.others, f.ended = make(map[string]*instance), make(map[string]bool)
	}
	now := time.Now()
	for id, post := range posts {
		o := f.others[id]
		switch {
		case id == f.Recorder.id:
		case part == nowPart && len(post) == 0:
			if !f.ended[id] {
				f.ended[id], ended = true, true
			}
		case part == nowPart, part == historyPart:
			f.readCounts(part, id, post, now)
		case o != nil && !bytes.Equal(o.posts[part], post) && f.readable(part, post, now):
			o.posts[part] = post
		}
	}
	f.forget(part, posts)
	return ended, nil
}

// readable reports whether a post of subjectsPart, costsPart or loadsPart can be read.
func (f *Fleet) readable(part string, post []byte, now time.Time) bool {
	var err error
	switch part {
	case subjectsPart:
		err = make(fleetSubjects).add(post)
	case costsPart:
		err = make(fleetCosts).add(post, now.Unix(), f.Recorder.engine.Policy())
	case loadsPart:
		err = make(fleetLoads).add(post, now.Unix(), nil, false)
	}
	return err == nil
}

// readCounts reads the counts that an instance has posted. It ignores unreadable posts, and posts of another
// instance.
func (f *Fleet) readCounts(part, id string, post []byte, now time.Time) {
	h, err := readPost(post, 0, 0, skipped)
	if err != nil || h.ID != id {
		return
	}
	o := f.others[id]
	if o == nil {
		o = &instance{seenAt: earlier(h.At, now), posts: make(map[string][]byte)}
		f.others[id] = o
	}
	if part == historyPart {
		if f.ended[id] && !h.At.Before(o.head.At) {
			o.now = nil // o.now is older than the history
		}
		if o.history = post; o.now == nil {
			o.head = h
		}
		return
	}
	if o.now == nil || h.Policy != o.head.Policy {
		o.changedAt = now
	}
	if o.now != nil && !h.At.Equal(o.head.At) {
		o.seenAt = now
	}
	o.now, o.head = post, h
	delete(f.ended, id)
}

// forget removes instances and posts that are no longer on the board.
func (f *Fleet) forget(part string, posts map[string][]byte) {
	if part == nowPart {
		maps.DeleteFunc(f.ended, func(id string, _ bool) bool { _, still := posts[id]; return !still })
	}
	for id, o := range f.others {
		if _, still := posts[id]; still {
			continue
		}
		switch part {
		case nowPart:
			o.now = nil
		case historyPart:
			o.history = nil
		default:
			delete(o.posts, part)
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

// Find returns the key of the subject with the given ID, spelled as one of the subject's requests spelled it. It finds
// only subjects that were kept when the latest View was made: see [Subject] and [policy.Engine.SubjectOf].
func (f *Fleet) Find(id string) (key string, found bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.subjects.find(id, f.Recorder.engine.Policy())
}
