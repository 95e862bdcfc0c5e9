package telemetry

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/axiomhq/hyperloglog"

	"github.com/sluicehq/sluice"
)

// summary counts by key in bounded memory, and the summaries of parts merge into one of the whole: the
// Space-Saving of Metwally, Agrawal and El Abbadi 2005, stored as the "frequent" summary, of which Agarwal,
// Cormode, Huang, Phillips, Wei and Yi 2012 show that it is the same and that it merges.
//
// A key with an entry has low ≤ true ≤ over+floor; any other has true ≤ floor. A new key comes with
// low = over = 1. Once there are 2k entries, the k with the largest over stay: where the largest of the
// others is c, floor rises by c and each over falls by c, so no bound is broken. Each such step takes c from
// at least k+1 keys, and what is in all over was counted once:
//
//	floor·(k+1) ≤ total − Σ over,   so   floor ≤ total/(k+1)
//
// Merging adds entries, floors and totals, which keeps the bounds and that sum. A request that is lost for
// want of memory adds one to floor and total.
//
// Keys are counted exactly while all of them have entries, and afterwards by a HyperLogLog of 2^11
// registers: a standard error of 1.04/√2048 = 2.3 %. Its hash is no secret, so a client that can choose keys
// can falsify the estimate, as it can by sending many keys.
type summary struct {
	entries  []entry
	index    map[string]int // into entries, by key
	room     int            // entries that are paid for
	text     int            // bytes of keys and spellings
	floor    uint64
	total    uint64
	distinct *hyperloglog.Sketch // of all keys that ever were here; nil: all have entries
	known    uint64              // keys there are at least, by posts that had no room for a sketch

	k       int
	stepped bool     // entries have steps
	account *account // pays for the memory; may be nil
}

// entry is what a summary knows of a key.
type entry struct {
	key, sent   string // sent: the key as one request spelled it; empty: as key
	low, over   uint64
	blocked     uint64 // of low, by a block
	first, last int64  // unix milliseconds
	minutes     uint64 // bit i: counted in a minute that is i modulo 64 since the epoch
	limit       limit  // the last
	steps       *subjectSteps
}

// Each subject of an hour is counted by steps, to draw a chart.
const (
	SubjectSteps = 12
	SubjectStep  = 5 * time.Minute

	stepMillis = int64(SubjectStep / time.Millisecond)
	// stepPlaces is more than SubjectSteps, so that a post that is a few steps old is read correctly.
	stepPlaces = 16
)

// subjectSteps has counts by the number of the step modulo stepPlaces. Of an entry without, all requests were
// in the step of the last.
type subjectSteps [stepPlaces]uint64

// limit is a number of units in a time, as precisely as people need it. The zero value is unknown.
type limit struct {
	count   uint32
	seconds float32
}

// limit returns l for people.
func (l limit) limit() sluice.Limit {
	return sluice.Limit{Count: int64(l.count), Period: time.Duration(float64(l.seconds) * float64(time.Second))}
}

// limitOf returns the limit of a plan, unless it counts requests in flight.
func limitOf(p *sluice.Plan) limit {
	if p == nil || p.Limit.Period <= 0 || p.Limit.Count < 1 {
		return limit{}
	}
	return limit{uint32(min(p.Limit.Count, math.MaxUint32)), float32(p.Limit.Period.Seconds())}
}

const (
	entryBytes  = int(unsafe.Sizeof(entry{})) + 48 // with its place in the index
	mostEntries = 256                              // k
	mostText    = 64 << 10                         // bytes of keys in a summary
	maxKey      = 4 << 10                          // bytes: eight key parts, and the rule's name. Longer keys are lost
	precision   = 11                               // log2 of a sketch's registers
	sketchBytes = 1<<precision + 64
)

// newSummary returns an empty summary of what was counted in a window.
func newSummary(w Window, a *account) summary {
	return summary{k: mostEntries, stepped: w == Hour, account: a}
}

// reset empties a summary without an account, for another window, and keeps its memory.
func (s *summary) reset(w Window) {
	clear(s.index)
	entries, index := s.entries[:0], s.index
	*s = newSummary(w, nil)
	s.entries, s.index = entries, index
}

// bytes returns how much memory the summary takes.
func (s *summary) bytes() int {
	n := s.room*entryBytes + s.text
	if s.distinct != nil {
		n += sketchBytes
	}
	return n
}

// get returns the entry of a key, or nil.
func (s *summary) get(key string) *entry {
	if i, found := s.index[key]; found {
		return &s.entries[i]
	}
	return nil
}

// add adds what o counts to a key that one request spelled as sent, but not to total. It reports false if
// there is no memory at all, and then has added nothing.
func (s *summary) add(key, sent []byte, o *entry) bool {
	if i, found := s.index[string(key)]; found {
		s.entries[i].add(o, s.stepped)
		return true
	}
	if !s.reserve(len(key) + len(sent)) {
		return false
	}
	if s.index == nil {
		s.index = make(map[string]int)
	}
	if s.distinct != nil {
		s.distinct.Insert(key)
	}
	e := *o
	e.key, e.sent = string(key), string(sent)
	s.index[e.key] = len(s.entries)
	s.entries = append(s.entries, e)
	return true
}

// add adds the counts of o, and their steps if stepped.
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

// reserve makes room for an entry with a text of so many bytes.
func (s *summary) reserve(size int) bool {
	if len(s.entries) >= 2*s.k {
		s.trim(s.k)
	}
	for s.text+size > mostText && len(s.entries) > 0 {
		s.trim(len(s.entries) / 2)
	}
	more := size
	if len(s.entries) == s.room {
		more += entryBytes
	}
	if !s.account.take(more) {
		if s.trim(len(s.entries) / 2); len(s.entries) == s.room || !s.account.take(size) {
			return false
		}
	}
	s.room = max(s.room, len(s.entries)+1)
	s.text += size
	return true
}

// trim leaves the n largest entries.
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
	equal := n - (len(overs) - above) // entries with just cut that stay
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
	s.account.give(s.text - text)
	s.text = text
}

// sketch begins to count keys by a sketch, before some entries go.
func (s *summary) sketch() {
	if s.distinct != nil || !s.account.take(sketchBytes) {
		return
	}
	s.distinct, _ = hyperloglog.NewSketch(precision, false) // a valid precision
	for i := range s.entries {
		s.distinct.Insert([]byte(s.entries[i].key))
	}
}

// subjects returns how many keys there were, or where there was no memory for a sketch, how many at least.
func (s *summary) subjects() uint64 {
	n := max(uint64(len(s.entries)), s.known)
	if s.distinct != nil {
		n = max(n, s.distinct.Estimate())
	}
	return n
}

// most returns the most that any key can have.
func (s *summary) most() uint64 {
	over := uint64(0)
	for i := range s.entries {
		over = max(over, s.entries[i].over)
	}
	return over + s.floor
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
