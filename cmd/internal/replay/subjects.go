package replay

import (
	"hash/maphash"
	"math"
	"strings"

	"github.com/axiomhq/hyperloglog"
)

// MaxSubjects is the maximum number of subjects that are distinguished, for all rules together. The number of further
// subjects is estimated. A subject takes up to 400 bytes if it was denied, and otherwise up to 200.
const MaxSubjects = 1 << 20

// runGap is the time without requests, in seconds, that ends a run of requests.
const runGap = 10

// subject has the counts of a subject of a rule. It takes half a cache line, because nearly every access is a cache
// miss. Times are in seconds since the first request of the log. Counts stop at the largest number of their type.
type subject struct {
	hash     uint64
	first    uint32 // the time of the first request
	last     uint32 // the time of the last request
	runBegin uint32 // the start of the run of requests to which the last request belongs
	requests uint32 // 0 means that this slot of the table is empty
	record   uint32 // the number of the record, from 1; 0 means that the subject was never denied
	run      uint16 // the number of requests in the run of the last request
	runs     uint16 // the number of runs
}

// record has additional data about a denied subject.
type record struct {
	key     string // the key in the store
	name    string // the name of the client, if the log has names
	rule    int
	subject *subject // set at the end
	refused int64
	first   int64 // time of the first denial
	last    int64
	since   int64  // the time at which the subject went down; 0 means that it is not down
	until   int64  // end of the wait of its last denial
	down    int64  // the longest time for which the subject was down
	bestRun uint16 // the number of requests in the largest run since the first denial
	runSpan uint32 // the duration of this run
	mayPass int64  // the number of denied requests, since the limit was unused, that might have been allowed: see secondGains
	paths   [3]pathCount
	// enforced is set if an enforced rule denied the subject.
	enforced bool
}

// pathCount counts requests for a path. The paths with the most requests are kept.
type pathCount struct {
	path  string
	count uint32
}

// subjects has the subjects of some clients, or of all.
type subjects struct {
	seed    maphash.Seed
	slots   []subject // a hash table with open addressing; its length is a power of two
	none    uint64    // the hash of an empty value
	known   int
	room    int
	ofRule  []int64 // the number of known subjects of each rule
	begin   int64   // the time of the first request, in microseconds since the Unix epoch; 0 before the first request
	records []record
	// values maps the hashes of key values, for all rules, to whether an enforced rule has denied the value.
	values map[uint64]bool
	paths  map[string]string // the paths that are kept
	beyond *beyond           // estimates the subjects for which there was no room
}

// beyond estimates the number of subjects beyond [MaxSubjects], with a standard error of 0.8 %.
type beyond struct {
	seen, refused map[int]*hyperloglog.Sketch // by rule
	values        hyperloglog.Sketch
	refusedValues hyperloglog.Sketch
}

func newSubjects(seed maphash.Seed, room, rules int) *subjects {
	return &subjects{seed: seed, none: maphash.String(seed, ""), slots: make([]subject, 64), room: room, ofRule: make([]int64, rules), values: map[uint64]bool{}, paths: map[string]string{}}
}

// seen is a subject that has just made a request.
type seen struct {
	key   string
	rule  int
	of    *subject // nil if the subject is beyond MaxSubjects
	hash  uint64
	value uint64 // the hash of the value, the same for all rules of the group
}

// request counts a request of a rule's subject. The parameter key is the subject's key in the store, and text is the
// hash of the subject's value. The result is valid until the next call.
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

// subjectHash returns the hash of a rule's subject from the hash of its value. Within a group of four rules, the
// hashes of a value differ only in their topmost bits, so that the subjects are side by side in the table. A request
// often has subjects of all four rules.
func subjectHash(rule int, text uint64) uint64 {
	return (text + uint64(rule>>2)*0x9e3779b97f4a7c15) ^ uint64(rule&3)<<62
}

// newcomer returns a slot for a new hash, or nil if there are MaxSubjects subjects already.
func (t *subjects) newcomer(hash uint64) *subject {
	if t.known >= t.room {
		return nil
	}
	if t.known*2 >= len(t.slots) {
		t.grow()
	}
	t.known++
	return t.find(hash)
}

// endRun keeps the run that has ended if it is the largest since the first denial.
func (t *subjects) endRun(s *subject) {
	if s.record == 0 {
		return
	}
	if r := &t.records[s.record-1]; s.run > r.bestRun {
		r.bestRun, r.runSpan = s.run, s.last-s.runBegin
	}
}

// refused counts a denial of the request by a rule, which may be in shadow mode. The wait of the denial is in
// microseconds.
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

// unsure is a denied subject. The field gain is the smallest result of secondGains for the limits that deny it.
type unsure struct {
	seen
	gain int64
}

// mayPass reports whether a request that the limits of all these subjects deny might have been allowed at its true
// time. If so, it counts the request.
func (t *subjects) mayPass(all []unsure) bool {
	for _, u := range all {
		if u.of == nil {
			return u.gain > 0 // nothing more is known about the subject
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

// passed counts an allowed request. The parameter unused reports whether the limit was unused before.
func (t *subjects) passed(s seen, now int64, unused bool) {
	if s.of == nil || s.of.record == 0 {
		return
	}
	if unused {
		t.records[s.of.record-1].mayPass = 0
	}
	if r := &t.records[s.of.record-1]; r.since != 0 {
		// If the subject waits for longer than it must, this additional time is not downtime.
		r.down = max(r.down, min(now, r.until)-r.since)
		r.since = 0
	}
}

// end ends the current runs and downtimes of the denied subjects, after the last request.
func (t *subjects) end() {
	for i := range t.slots {
		s := &t.slots[i]
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

// find returns the slot of a hash, or an empty slot for it.
func (t *subjects) find(hash uint64) *subject {
	mask := uint64(len(t.slots) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		if s := &t.slots[i]; s.hash == hash || s.requests == 0 {
			return s
		}
	}
}

func (t *subjects) grow() {
	old := t.slots
	t.slots = make([]subject, 2*len(old))
	for i := range old {
		if old[i].requests > 0 {
			*t.find(old[i].hash) = old[i]
		}
	}
}

// textHash returns the hash of a value of a key.
func (t *subjects) textHash(value string) uint64 { return maphash.String(t.seed, value) }

// valueOf returns a key without the hash tag and the name of the rule.
func valueOf(key string) string {
	if key != "" && key[0] == '{' {
		_, key, _ = strings.Cut(key, "}")
	}
	_, value, _ := strings.Cut(key, "/")
	return value
}

// further adds a subject beyond MaxSubjects to the estimates.
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

// ask counts a request for a path, with the algorithm Space-Saving: a path with more than a third of the requests
// is always kept.
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

// path returns the path with the most requests.
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

// kept returns a copy of a path that stays valid, or "" if the path is new and there are already maxPaths paths.
func (t *subjects) kept(path string) string {
	path = path[:min(len(path), maxPathLen)]
	known, is := t.paths[path]
	if !is && len(t.paths) < maxPaths {
		known = strings.Clone(path)
		t.paths[known] = known
	}
	return known
}
