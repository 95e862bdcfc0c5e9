package telemetry

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/axiomhq/hyperloglog"

	"github.com/sluicehq/sluice"
)

// summary counts requests by key in bounded memory. Summaries of several sets of requests can be merged into a summary
// of their union. A summary is the Space-Saving summary of Metwally, Agrawal and El Abbadi 2005, stored as a
// "frequent" summary; Agarwal, Cormode, Huang, Phillips, Wei and Yi 2012 show that both are equivalent and mergeable.
//
// The true count of a key is called true here. A key with an entry has low ≤ true ≤ over+floor; any other key has
// true ≤ floor. A new key starts with low = over. When there are 2k entries, only the k entries with the largest
// over are kept: if the largest over of the removed entries is c, floor rises by c and each over falls by c, so the
// bounds still hold. Each such step takes c from at least k+1 keys, and every unit in any over was counted only once:
//
//	floor·(k+1) ≤ total − Σ over,   so   floor ≤ total/(k+1)
//
// Merging adds entries, floors and totals, so the bounds and this inequality hold for the sum, too.
//
// Keys are counted exactly while all of them have entries, and afterwards by a HyperLogLog of 2^11 registers: a
// standard error of 1.04/√2048 = 2.3 %. Its hash is not secret, so a client that can choose keys can falsify the
// estimate. Such a client can do so by sending many keys anyway.
type summary struct {
	entries  []entry
	index    map[string]int // index in entries, by key
	text     int            // bytes of keys and spellings
	floor    uint64
	total    uint64
	distinct *hyperloglog.Sketch // sketch of all keys that were ever added; nil: all keys have entries
	known    uint64              // a lower bound of the number of keys, from posts without room for a sketch

	k       int
	stepped bool // entries have steps
}

// entry has the counts of a key.
type entry struct {
	key, sent   string // sent is the key as one request spelled it, or empty if the spelling is the same
	low, over   uint64
	blocked     uint64 // the part of low that a block denied
	first, last int64  // unix milliseconds
	minutes     uint64 // bit i: counted in a minute with the number i modulo 64 since the epoch
	limit       limit  // the limit of the last request
	steps       *subjectSteps
}

// The requests of a [Subject] in the last hour are counted in steps, to draw a chart.
const (
	SubjectSteps = 12
	SubjectStep  = 5 * time.Minute

	stepMillis = int64(SubjectStep / time.Millisecond)
	// stepPlaces is more than SubjectSteps, so that a post that is a few steps old is read correctly.
	stepPlaces = 16
)

// subjectSteps has counts by the number of the step modulo stepPlaces. If an entry has no steps, all of its
// requests were in the step of the last one.
type subjectSteps [stepPlaces]uint64

// limit is a number of units in a time. The zero value means an unknown limit.
type limit struct {
	count  int64
	period time.Duration
}

// limitOf returns the limit of a plan, unless it counts requests in flight or money.
func limitOf(p *sluice.Plan) limit {
	if p == nil || p.Limit.Period <= 0 || p.Limit.Count < 1 || p.Limit.Money > 0 {
		return limit{}
	}
	return limit{p.Limit.Count, p.Limit.Period}
}

const (
	mostEntries = 256     // the maximum of k
	entryText   = 128     // bytes of keys and spellings for each of the k entries
	maxKey      = 4 << 10 // bytes: eight key parts, and the rule's name
	precision   = 11      // log2 of a sketch's registers
	sketchBytes = 1<<precision + 64
)

// newSummary returns an empty summary for a window.
func newSummary(w Window) summary { return summary{k: mostEntries, stepped: w == Hour} }

// reset empties a summary, so that its memory can be used for another window.
func (s *summary) reset(w Window) {
	clear(s.index)
	entries, index := s.entries[:0], s.index
	*s = newSummary(w)
	s.entries, s.index = entries, index
}

// get returns the entry of a key, or nil.
func (s *summary) get(key string) *entry {
	if i, found := s.index[key]; found {
		return &s.entries[i]
	}
	return nil
}

// add adds the counts of o to the entry of a key, but not to total. The spelling is the key as a request has it, or
// empty if that is the same.
func (s *summary) add(key, spelling string, o *entry) {
	if i, found := s.index[key]; found {
		s.entries[i].add(o, s.stepped)
		return
	}
	s.makeRoom(len(key) + len(spelling))
	if s.index == nil {
		s.index = make(map[string]int)
	}
	if s.distinct != nil {
		s.distinct.Insert([]byte(key))
	}
	e := *o
	e.key, e.sent = strings.Clone(key), strings.Clone(spelling)
	s.text += len(key) + len(spelling)
	s.index[e.key] = len(s.entries)
	s.entries = append(s.entries, e)
}

// add adds the counts of o, and their steps if the parameter stepped is true.
func (e *entry) add(o *entry, stepped bool) {
	if stepped && (e.steps != nil || o.steps != nil || e.last/stepMillis != o.last/stepMillis) {
		e.steps = e.bySteps()
		for i, n := range o.bySteps() {
			e.steps[i] += n
		}
	}
	if o.limit != (limit{}) && (o.last >= e.last || e.limit == (limit{})) {
		e.limit = o.limit
	}
	e.low += o.low
	e.over += o.over
	e.blocked += o.blocked
	e.first, e.last = min(e.first, o.first), max(e.last, o.last)
	e.minutes |= o.minutes
}

// bySteps returns the counts of an entry by steps.
func (e *entry) bySteps() *subjectSteps {
	if e.steps != nil {
		return e.steps
	}
	s := new(subjectSteps)
	s[e.last/stepMillis&(stepPlaces-1)] = e.low
	return s
}

// makeRoom removes entries until a new one, with size bytes of key and spelling, fits.
func (s *summary) makeRoom(size int) {
	if len(s.entries) >= 2*s.k {
		s.trim(s.k)
	}
	for s.text+size > entryText*s.k && len(s.entries) > 0 {
		s.trim(len(s.entries) / 2)
	}
}

// trim keeps only the n largest entries.
func (s *summary) trim(n int) {
	if len(s.entries) <= n {
		return
	}
	s.sketch()
	var buffer [2 * mostEntries]uint64
	overs := buffer[:0]
	for i := range s.entries {
		overs = append(overs, s.entries[i].over)
	}
	slices.Sort(overs)
	cut := overs[len(overs)-1-n]
	above, _ := slices.BinarySearch(overs, cut+1)
	equal := n - (len(overs) - above) // how many entries with an over of exactly cut stay
	kept, text := s.entries[:0], 0
	clear(s.index)
	for _, e := range s.entries {
		if e.over == cut {
			equal--
		}
		if e.over < cut || e.over == cut && equal < 0 {
			continue
		}
		e.over -= cut
		text += len(e.key) + len(e.sent)
		s.index[e.key] = len(kept)
		kept = append(kept, e)
	}
	clear(s.entries[len(kept):])
	s.entries = kept
	s.floor += cut
	s.text = text
}

// sketch starts to count keys by a sketch, before entries are removed.
func (s *summary) sketch() {
	if s.distinct != nil {
		return
	}
	s.distinct, _ = hyperloglog.NewSketch(precision, false) // a valid precision
	for i := range s.entries {
		s.distinct.Insert([]byte(s.entries[i].key))
	}
}

// subjects returns the number of keys, or a lower bound if a post had no room for a sketch.
func (s *summary) subjects() uint64 {
	n := max(uint64(len(s.entries)), s.known)
	if s.distinct != nil {
		n = max(n, s.distinct.Estimate())
	}
	return n
}

// largest returns the entries, the largest first.
func (s *summary) largest() []*entry {
	order := make([]*entry, len(s.entries))
	for i := range order {
		order[i] = &s.entries[i]
	}
	slices.SortFunc(order, func(a, b *entry) int {
		if a.over != b.over {
			return cmp.Compare(b.over, a.over)
		}
		return cmp.Or(cmp.Compare(b.low, a.low), cmp.Compare(b.last, a.last), strings.Compare(a.key, b.key))
	})
	return order
}
