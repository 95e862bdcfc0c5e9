// Package recent records the latest requests in a ring of bounded size, and tries changed policies on these
// requests with the engine and the store that also limit live traffic. Package control imports it.
package recent

import (
	"context"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// LeastBytes is the minimum size of a ring.
const LeastBytes = 1 << 20

// maxStripes bounds the chunks that are written at the same time.
const maxStripes = 16

// Ring records requests with their decisions. A record has the time, method, host, path without the query, address
// of the client, and the parts of the request that rules read, but never a body. If a rule hides a key part, the
// record has a hash of the value, made with a secret of the process. A Ring is safe for concurrent use.
type Ring struct {
	seed    maphash.Seed
	stripes []stripe
	near    sync.Pool              // the stripes; a core usually gets the one that is in its cache
	schema  atomic.Pointer[schema] // the schema for the policy of the latest decision
	size    int                    // the size of a chunk in bytes
	most    int                    // the maximum number of sealed chunks
	ids     atomic.Uint64          // the last request ID; a request has an ID only if rules depend on its outcome
	lost    atomic.Int64           // the number of requests that were too large for a chunk
	trying  chan struct{}          // full during a trial

	mu      sync.Mutex
	sealed  []*chunk // the oldest first
	dropped bool     // older chunks were dropped

	// fresh reports whether all counters were empty before the first decision.
	fresh bool
}

// stripe has one of the chunks that are written at the same time. With several stripes, cores do not wait for each
// other.
type stripe struct {
	mu sync.Mutex
	writer
	_ [64]byte
}

// chunk is a part of the ring that can be read independently. Bytes that were written do not change.
type chunk struct {
	schema *schema
	stripe int
	first  int64 // time of the first record, in microseconds since the Unix epoch
	last   int64 // time of the last record
	data   []byte
}

// Watch returns a ring that records the decisions of an engine in at most the given number of bytes. Call it before
// the first decision.
func Watch(e *policy.Engine, bytes int64) *Ring {
	bytes = max(bytes, LeastBytes)
	n := min(maxStripes, runtime.GOMAXPROCS(0))
	size := int(min(max(bytes/128, 16<<10), maxChunk))
	r := &Ring{seed: maphash.MakeSeed(), stripes: make([]stripe, n), size: size, most: max(1, int(bytes)/size-n), trying: make(chan struct{}, 1)}
	for i := range r.stripes {
		r.stripes[i].seed, r.stripes[i].stripe = r.seed, i
	}
	var next atomic.Uint32
	r.near.New = func() any { return &r.stripes[next.Add(1)%uint32(n)] }
	e.Observe(r.observe)
	e.ObserveOutcomes(r.observeOutcome)
	return r
}

func (r *Ring) observe(_ context.Context, o *policy.Observation) {
	if !kept(o) {
		return
	}
	s := r.schema.Load()
	if s == nil || s.policy.Load() != o.Policy() {
		s = r.follow(o.Policy())
	}
	at := o.Decision.Now
	if at == 0 {
		at = time.Now().UnixMicro()
	}
	id := uint64(0)
	if o.Decision.Unsettled() {
		id = r.ids.Add(1)
		o.Decision.Track(id)
	}
	w := r.near.Get().(*stripe)
	defer r.near.Put(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.room(w, s, w.measure(o, s), at) {
		w.write(o, s, at, id)
	}
}

func (r *Ring) observeOutcome(id uint64, o *policy.Outcome) {
	s := r.schema.Load()
	if s == nil {
		return
	}
	at := time.Now().UnixMicro()
	w := r.near.Get().(*stripe)
	defer r.near.Put(w)
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.room(w, s, measureOutcome(s), at) {
		w.outcome(o, s, at, id)
	}
}

// room starts a new chunk if a record does not fit into the current one. It returns false if the record is too
// large for any chunk.
func (r *Ring) room(w *stripe, s *schema, bytes int, at int64) bool {
	if bytes > r.size {
		r.lost.Add(1)
		return false
	}
	if w.chunk == nil || w.chunk.schema != s || bytes > cap(w.chunk.data)-len(w.chunk.data) {
		r.seal(w.chunk)
		w.begin(&chunk{schema: s, stripe: w.stripe, first: at, last: at, data: make([]byte, 0, r.size)})
	}
	return true
}

// kept reports whether a decision is recorded. Only decisions of rules about requests are recorded. Not recorded are
// exempt preflights, repeated requests, denials in an overload, and blocks by an operator.
func kept(o *policy.Observation) bool {
	d := &o.Decision
	switch {
	case o.Request.Subject != nil, o.Request.Mode == policy.Peek, d.Repeated && d.Allowed, d.Overloaded != "":
		return false
	case d.Exempt && o.Exempting() == "":
		return false
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.Plan == nil && r.From == "block" && o.Key(i) != "" {
			return false
		}
	}
	return true
}

// seal adds a chunk to the sealed ones. If there are too many, it drops the oldest.
func (r *Ring) seal(c *chunk) {
	if c == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = append(r.sealed, c)
	if more := len(r.sealed) - r.most; more > 0 {
		r.sealed, r.dropped = append(r.sealed[:0:0], r.sealed[more:]...), true
	}
}

// follow returns the schema for a policy. If the current schema is equal, it returns the current one.
func (r *Ring) follow(p *policy.Policy) *schema {
	r.mu.Lock()
	defer r.mu.Unlock()
	now, next := r.schema.Load(), schemaOf(p)
	if now != nil && now.same(next) {
		now.policy.Store(p)
		return now
	}
	r.schema.Store(next)
	return next
}

// complete reports whether the ring still has every request since its start.
func (r *Ring) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return !r.dropped && r.lost.Load() == 0
}

// chunks returns the chunks of the ring. The chunks of a stripe are in order.
func (r *Ring) chunks() []chunk {
	var writing []chunk
	for i := range r.stripes {
		s := &r.stripes[i]
		s.mu.Lock()
		defer s.mu.Unlock() // unlock only after copying the sealed chunks; otherwise a chunk could be missing or occur twice
		if s.chunk != nil {
			writing = append(writing, *s.chunk)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]chunk, 0, len(r.sealed)+len(writing))
	for _, c := range r.sealed {
		all = append(all, *c)
	}
	return append(all, writing...)
}
