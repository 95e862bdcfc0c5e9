package replay

import (
	"hash/maphash"
	"math"
	"strings"

	"github.com/axiomhq/hyperloglog"
)

// MaxSubjects is how many subjects are distinguished, over all rules. The number of further ones is estimated. A
// subject takes up to 400 bytes if it was denied, and otherwise up to 200.
const MaxSubjects = 1 << 20

// runGap is the silence that ends a run of requests, in seconds.
const runGap = 10

// subject is what is known of a subject of a rule: half a cache line, since nearly every one is a miss.
// Times are in seconds since the first request of all, and counts stop at the largest number.
type subject struct {
	hash     uint64
	first    uint32 // request
	last     uint32
	runBegin uint32 // of the run of requests that last belongs to
	requests uint32 // 0: the place is free
	record   uint32 // from 1; 0: it was never refused
	run      uint16 // requests in the run
	runs     uint16
}

// record is what is known of a subject that was refused.
type record struct {
	key     string // of the store
	name    string // of the client, if the log has names
	rule    int
	subject *subject // at the end
	refused int64
	first   int64 // refusal
	last    int64
	since   int64 // when it went down; 0: it is not
	until   int64 // end of the wait of its last denial
	down    int64 // longest time
	bestRun uint16
	runSpan uint32 // of that run
	mayPass int64  // how many refusals might have passed since its limit was unused: see secondGains
	paths   [3]pathCount
	// enforced reports that it was denied by an enforced rule.
	enforced bool
}

// pathCount is how often a path was asked for; those that are asked for most stay.
type pathCount struct {
	path  string
	count uint32
}

// subjects are those of some clients, or of all.
type subjects struct {
	seed    maphash.Seed
	places  []subject // open addressing, a power of two
	none    uint64    // the hash of no value
	known   int
	room    int
	ofRule  []int64 // how many are known
	begin   int64   // time of the first request, in microseconds since the Unix epoch; 0 before
	records []record
	// values are the values of keys, whichever rule has them, and whether one that enforces has refused
	// them.
	values map[uint64]bool
	paths  map[string]string // those that are kept
	beyond *beyond           // what there was no room for
}

// beyond estimates the number of subjects above the maximum, with a standard error of 0.8 %.
type beyond struct {
	seen, refused map[int]*hyperloglog.Sketch // by rule
	values        hyperloglog.Sketch
	refusedValues hyperloglog.Sketch
}

func newSubjects(seed maphash.Seed, room, rules int) *subjects {
	return &subjects{seed: seed, none: maphash.String(seed, ""), places: make([]subject, 64), room: room, ofRule: make([]int64, rules), values: map[uint64]bool{}, paths: map[string]string{}}
}

// seen is a subject that has just made a request.
type seen struct {
	key   string
	rule  int
	of    *subject // nil above the maximum
	hash  uint64
	value uint64 // stands for the value, whichever rule of the group has it
}

// request counts a request of the subject of a rule, by its key in the store and the hash of its value. The result
// is valid until the next one.
func (t *subjects) request(rule, group int, key string, text uint64, now int64) seen {
	if t.begin == 0 {
		t.begin = now
	}
	second := uint32(max(0, now-t.begin) / 1e6)
	hash, value := subjectHash(rule, text), text+uint64(group)*0xbf58476d1ce4e5b9
	s := t.find(hash)
	if s.requests == 0 {
		if s = t.newcomer(hash); s == nil {
			t.further(rule, value, hash)
			return seen{key, rule, nil, hash, value}
		}
		t.ofRule[rule]++
		*s = subject{hash: hash, first: second, last: second, runBegin: second, requests: 1, run: 1, runs: 1}
		if _, known := t.values[value]; !known {
			t.values[value] = false
		}
		return seen{key, rule, s, hash, value}
	}
	if s.requests < math.MaxUint32 {
		s.requests++
	}
	if second > s.last+runGap {
		t.endRun(s)
		s.runBegin, s.run = second, 0
		if s.runs < math.MaxUint16 {
			s.runs++
		}
	}
	if s.run < math.MaxUint16 {
		s.run++
	}
	s.last = second
	return seen{key, rule, s, hash, value}
}

// subjectHash returns the hash of the subject of a rule by the hash of its value. It differs from those of three
// other rules only in its topmost bits, so that their places are side by side: a request often has all of them.
func subjectHash(rule int, text uint64) uint64 {
	return (text + uint64(rule>>2)*0x9e3779b97f4a7c15) ^ uint64(rule&3)<<62
}

// newcomer returns a place for a new hash, or nil above the maximum.
func (t *subjects) newcomer(hash uint64) *subject {
	if t.known >= t.room {
		return nil
	}
	if t.known*2 >= len(t.places) {
		t.grow()
	}
	t.known++
	return t.find(hash)
}

// endRun keeps the run that has ended if it is the largest since the first refusal.
func (t *subjects) endRun(s *subject) {
	if s.record == 0 {
		return
	}
	if r := &t.records[s.record-1]; s.run > r.bestRun {
		r.bestRun, r.runSpan = s.run, s.last-s.runBegin
	}
}

// refused counts a denial of the request, by a rule or a shadow. Wait is that of the denial, in microseconds.
func (t *subjects) refused(s seen, now, wait int64, enforced bool, name, path string) {
	if s.of == nil {
		sketchOf(t.beyond.refused, s.rule).InsertHash(s.hash)
		if !enforced {
			return
		}
		if known(t.values, s.value) {
			t.values[s.value] = true
		} else {
			t.beyond.refusedValues.InsertHash(s.value)
		}
		return
	}
	if s.of.record == 0 {
		t.records = append(t.records, record{key: strings.Clone(s.key), name: strings.Clone(name), rule: s.rule, first: now})
		s.of.record = uint32(len(t.records))
	}
	r := &t.records[s.of.record-1]
	if enforced && !r.enforced {
		r.enforced = true
		t.values[s.value] = true
	}
	r.refused++
	r.last, r.until = now, now+wait
	if r.since == 0 {
		r.since = max(now, 1)
	}
	r.ask(t.kept(path))
}

// unsure is a subject that was refused, and how many such requests its limit may let pass more.
type unsure struct {
	seen
	gain int64
}

// mayPass reports whether a request that all these refuse might have passed at its true time, and
// notes that it might.
func (t *subjects) mayPass(all []unsure) bool {
	for _, u := range all {
		if u.of == nil {
			return u.gain > 0 // nothing more is known of it
		}
		if t.records[u.of.record-1].mayPass >= u.gain {
			return false
		}
	}
	for _, u := range all {
		t.records[u.of.record-1].mayPass++
	}
	return len(all) > 0
}

// passed notes that it passed, and whether a limit was unused before.
func (t *subjects) passed(s seen, now int64, unused bool) {
	if s.of == nil || s.of.record == 0 {
		return
	}
	if unused {
		t.records[s.of.record-1].mayPass = 0
	}
	if r := &t.records[s.of.record-1]; r.since != 0 {
		// A subject that goes away is not down meanwhile.
		r.down = max(r.down, min(now, r.until)-r.since)
		r.since = 0
	}
}

// end closes open downtimes after the last request.
func (t *subjects) end() {
	for i := range t.places {
		s := &t.places[i]
		if s.requests == 0 || s.record == 0 {
			continue
		}
		t.endRun(s)
		r := &t.records[s.record-1]
		r.subject = s
		if r.since != 0 {
			r.down = max(r.down, r.last-r.since)
		}
	}
}

// find returns the place of a hash, which may be free.
func (t *subjects) find(hash uint64) *subject {
	mask := uint64(len(t.places) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &t.places[i]; s.hash == hash || s.requests == 0 {
			return s
		}
	}
}

func (t *subjects) grow() {
	old := t.places
	t.places = make([]subject, 2*len(old))
	for i := range old {
		if old[i].requests > 0 {
			*t.find(old[i].hash) = old[i]
		}
	}
}

// textHash returns the hash of a value of a key.
func (t *subjects) textHash(value string) uint64 { return maphash.String(t.seed, value) }

// valueOf takes the hash tag and the name of the rule off a key.
func valueOf(key string) string {
	if key != "" && key[0] == '{' {
		_, key, _ = strings.Cut(key, "}")
	}
	_, value, _ := strings.Cut(key, "/")
	return value
}

// further estimates the number of subjects above the maximum.
func (t *subjects) further(rule int, value, hash uint64) {
	if t.beyond == nil {
		t.beyond = &beyond{seen: map[int]*hyperloglog.Sketch{}, refused: map[int]*hyperloglog.Sketch{}}
	}
	b := t.beyond
	sketchOf(b.seen, rule).InsertHash(hash)
	if !known(t.values, value) {
		b.values.InsertHash(value)
	}
}

// sketchOf returns the sketch of a rule, and adds it if it is missing.
func sketchOf(sketches map[int]*hyperloglog.Sketch, rule int) *hyperloglog.Sketch {
	s := sketches[rule]
	if s == nil {
		s = new(hyperloglog.Sketch)
		sketches[rule] = s
	}
	return s
}

func known(values map[uint64]bool, value uint64) bool {
	_, known := values[value]
	return known
}

// ask counts that a path was asked for (Space-Saving): one that is asked for more often than a third of
// the time is among those that are kept.
func (r *record) ask(path string) {
	least := &r.paths[0]
	for i := range r.paths {
		c := &r.paths[i]
		if c.path == path && c.count > 0 {
			c.count++
			return
		}
		if c.count < least.count {
			least = c
		}
	}
	least.path = path
	least.count++
}

// path returns the path that was asked for most.
func (r *record) path() string {
	best := r.paths[0]
	for _, c := range r.paths[1:] {
		if c.count > best.count {
			best = c
		}
	}
	return best.path
}

const (
	maxPaths   = 1 << 13
	maxPathLen = 200
)

// kept returns a path that lasts, or "" if it is a new one and there are maxPaths of them.
func (t *subjects) kept(path string) string {
	path = path[:min(len(path), maxPathLen)]
	known, is := t.paths[path]
	if !is && len(t.paths) < maxPaths {
		known = strings.Clone(path)
		t.paths[known] = known
	}
	return known
}
