// Package replay decides about the requests in access logs by a policy, at the times in the logs, and reports what
// would have happened. It uses the same engine and store that limit live traffic. Packages cli and show import it; it
// imports packages feed and accesslog.
package replay

import (
	"context"
	"fmt"
	"hash/maphash"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// Store is a store like memory.Store.
type Store interface {
	// TakeAt is like Take of a store, but charges at the time now, in microseconds since the Unix epoch.
	TakeAt(ctx context.Context, now int64, charges []sluice.Charge, receipts []sluice.Receipt) error
	// Evicted returns the number of nonempty states that the store has evicted for lack of room.
	Evicted() int64
}

// Config configures a replay.
type Config struct {
	Files    []string
	Feed     feed.Options // except for Begin
	Document policy.Document
	// Against is another policy that decides about the same requests. Nil means no comparison.
	Against *policy.Document
	Compile func(policy.Document) (*policy.Policy, error)
	// NewStore makes an empty store of at most maxBytes bytes. The store grows as it is filled.
	NewStore func(maxBytes int64) Store
	// Nodes is used if Against is nil. The policy is then compared with a fleet of this many instances, each with its
	// own counts. 0 means no comparison.
	Nodes   int
	Workers int // the maximum number of goroutines that decide; 0 means one for each processor

	decided func(n int64, allowed bool) // for tests; called with the number of each request
}

const (
	// storeBytes bounds the memory of the stores of a policy.
	storeBytes = 256 << 20
	// maxParts is the number of parts into which clients are divided. It is the same on every machine, so that stores
	// evict the same states for lack of room.
	maxParts = 16
)

// Run replays the logs. It keeps at most [MaxSubjects] subjects and 256 MiB of states for each policy, in addition
// to the memory of the feed.
func Run(ctx context.Context, c Config) (*Report, error) {
	var run *replay
	options := c.Feed
	options.Begin = func(files []feed.File) (err error) {
		run, err = newReplay(&c, files)
		return err
	}
	options.Mark = func() func(*feed.Entry) { return newMarker(run).mark }
	stats, err := feed.Read(ctx, c.Files, options, func(b *feed.Batch) error {
		run.batch(ctx, b)
		return ctx.Err()
	})
	if run == nil {
		return nil, err
	}
	run.end()
	if err != nil {
		return nil, err
	}
	return run.report(&stats), nil
}

// replay is a replay under way.
type replay struct {
	config  *Config
	other   string    // the name of the other side
	sides   []*judged // the policy and, in a comparison, the other side
	parts   []*part
	split   *policy.Policy // the policy with the larger networks, which divides clients into parts
	trusted []netip.Prefix
	workers []*worker

	next    int64 // the number of the next request
	running sync.WaitGroup
}

// judged is a policy with the rules for which the logs contain enough data.
type judged struct {
	document  policy.Document
	exactLogs bool // each sliding_window_log is exact: see withExactLogs
	notJudged []NotJudged
	policy    *policy.Policy
	rules     []ruleInfo
}

func newReplay(c *Config, files []feed.File) (*replay, error) {
	run := &replay{config: c, other: "another policy"}
	documents := []policy.Document{c.Document}
	stores := []func(int64) Store{c.NewStore, c.NewStore}
	parts := maxParts
	switch {
	case c.Against != nil:
		documents = append(documents, *c.Against)
	case c.Nodes > 0:
		documents = append(documents, c.Document)
		run.other = fmt.Sprintf("%d instances that count each for itself", c.Nodes)
		stores[1] = func(maxBytes int64) Store { return newAlone(c.Nodes, maxBytes, c.NewStore) }
	}
	for _, doc := range documents {
		j, err := judge(c, doc, files)
		if err != nil {
			return nil, err
		}
		run.sides = append(run.sides, j)
		if !byClient(&j.document) {
			parts = 1
		}
	}
	run.split = run.sides[0].policy
	if len(run.sides) > 1 {
		a, b := &run.sides[0].document, &run.sides[1].document
		if !slices.Equal(a.TrustedProxies, b.TrustedProxies) {
			parts = 1
		}
		if prefix(b) < prefix(a) {
			run.split = run.sides[1].policy
		}
	}
	seed := maphash.MakeSeed()
	for range parts {
		p := &part{versus: versus{mostClients: MaxSubjects / parts}}
		for i, j := range run.sides {
			p.counts = append(p.counts, newCounts(stores[i], seed, parts, len(j.rules)))
		}
		run.parts = append(run.parts, p)
	}
	run.trusted = run.sides[0].policy.TrustedProxies()
	run.start()
	return run, nil
}

func prefix(doc *policy.Document) int {
	if doc.IPv6Prefix == 0 {
		return 64
	}
	return doc.IPv6Prefix
}

func judge(c *Config, doc policy.Document, files []feed.File) (j *judged, err error) {
	j = new(judged)
	j.document, j.notJudged = judgeable(doc, files)
	compiled := j.document
	if wholeSeconds(files) {
		compiled, j.exactLogs = withExactLogs(compiled)
	}
	if j.policy, err = c.Compile(compiled); err != nil {
		return nil, err
	}
	groups := map[string]int{}
	for i := range j.document.Rules {
		r := &j.document.Rules[i]
		key := strings.Join(keyOf(r), " ")
		if r.Block {
			key = "client_ip"
		}
		group, known := groups[key]
		if !known {
			group = len(groups)
			groups[key] = group
		}
		j.rules = append(j.rules, ruleInfo{group, r})
	}
	return j, nil
}

// start starts the workers. Each worker has parts of its own, so that the requests of a part stay in order.
func (run *replay) start() {
	n := run.config.Workers
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	for i := range min(n, len(run.parts)) {
		w := newWorker(run)
		w.number = i
		run.workers = append(run.workers, w)
		run.running.Go(w.work)
	}
}

// end waits until all requests are decided.
func (run *replay) end() {
	for _, w := range run.workers {
		close(w.jobs)
	}
	run.running.Wait()
}

// job is a batch to decide about.
type job struct {
	*feed.Batch
	context.Context
	first   int64        // the number of the batch's first request
	pending atomic.Int32 // the number of workers that are not done
}

// batch passes a batch on to the workers. It waits only while their queues are full.
func (run *replay) batch(ctx context.Context, b *feed.Batch) {
	j := &job{Batch: b, Context: ctx, first: run.next}
	j.pending.Store(int32(len(run.workers)))
	run.next += int64(len(b.Entries))
	for _, w := range run.workers {
		w.jobs <- j
	}
}

// part has the counts of some clients, or of all. No counts are shared with other parts, so parts can be decided
// concurrently without changing the result.
type part struct {
	counts []*counts // the counts of each side
	versus versus
}

// counts has the counts of one policy for a part.
type counts struct {
	store    Store
	subjects *subjects
}

func newCounts(newStore func(maxBytes int64) Store, seed maphash.Seed, parts, rules int) *counts {
	return &counts{newStore(storeBytes / int64(parts)), newSubjects(seed, MaxSubjects/parts, rules)}
}

// worker decides about the requests of some parts.
type worker struct {
	run      *replay
	number   int
	jobs     chan *job
	requests *requests
	sides    []*side
	traps    traps
}

func newWorker(run *replay) *worker {
	w := &worker{run: run, jobs: make(chan *job, 2)}
	var docs []*policy.Document
	for _, j := range run.sides {
		docs = append(docs, &j.document)
		w.sides = append(w.sides, newSide(j.policy, j.rules))
	}
	w.requests = newRequests(docs...)
	return w
}

func (w *worker) work() {
	for j := range w.jobs {
		if j.first == 0 { // the series of all workers begin with the first request of the log
			for _, s := range w.sides {
				s.tally.step(j.Entries[0].Time)
			}
		}
		for i, e := range j.Entries {
			if int(e.Part)%len(w.run.workers) == w.number {
				w.decide(j, j.first+int64(i), e)
			}
		}
		if j.pending.Add(-1) == 0 {
			j.Release()
		}
	}
}

// decide decides about the request with number n.
func (w *worker) decide(ctx context.Context, n int64, e *feed.Entry) {
	p := w.run.parts[e.Part]
	r := w.requests.build(&e.Entry, e.Peer)
	w.traps.look(&e.Entry, r, w.run.trusted)
	name := ""
	if e.Named {
		name = text(e.Client)
	}
	allowed := w.sides[0].decide(ctx, &e.Entry, r, name, p.counts[0])
	if len(w.sides) > 1 {
		other := w.sides[1].decide(ctx, &e.Entry, r, name, p.counts[1])
		p.versus.note(w.run.split.Partition(r), name, allowed, other)
	}
	if w.run.config.decided != nil {
		w.run.config.decided(n, allowed)
	}
}
