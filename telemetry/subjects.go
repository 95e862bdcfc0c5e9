package telemetry

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// subjects keeps who is refused most and who asks most, by rule, of one instance. Of each rule it has
// two histories (see there), each of which tells of the last minute, hour and day: the subjects
// with the largest counts, with an error of at most 1/257 of the total (see summary), and how many
// subjects there were, with a standard error of 2.3 % beyond 256 of them, and exactly below (see
// registers).
//
// Memory. A subject of the ten seconds that have begun takes 96 bytes, 4 in an index, and its key; there
// are 512 of them at most in a history, with 64 KiB of keys, and 2 KiB of registers: 68 KiB where
// keys have 32 bytes. A closed slot takes 64 bytes and some 30 for each of at most 256 subjects, and 1 KiB for
// registers, at most 16 KiB; there are 42 at most, and three that join them. So a rule that is flooded
// takes 2·(68 + 45·9) KiB = 0.9 MiB, and a quiet one with ten subjects 25 KiB in a day. All rules
// together take no more than a budget of 32 MiB, whatever their number and that of their keys. Who needs
// more than is left gets less: summaries stay small, and what is in none counts as lost, which adds
// to the error that is told. share takes from the rules with the least refusals and traffic. Not in
// the budget are 64 stripes at most of 14 KiB, and what an export needs while it is made, 1 MiB.
//
// Error. What is told is Count-Error ≤ true ≤ Count, for all instances together, and a subject that is
// missing has at most the Error of its list. It is larger than total/257 where keys are so long, or
// memory so short, that less than 256 subjects are kept, where what is posted has no room for
// as many (see export), where something was lost, and for those behind the first hundred, which are
// not listed. A request belongs to the ten seconds in which it is taken out of its stripe, as a rule
// those in which it came.
type subjects struct {
	budget   budget
	stripes  []stripe
	swept    atomic.Int64 // number of the ten seconds in which all stripes were last emptied
	squeezed bool         // some rule keeps less than it could; guarded by exporting

	mu     sync.RWMutex // of the map
	rules  map[string]*ruled
	others losses // of rules for which there is no place

	exporting sync.Mutex
}

// ruled is what is kept of one rule.
type ruled struct {
	name string

	mu        sync.Mutex
	kept      int // subjects at least, where there is memory for them
	heat      uint64
	heated    int64 // ten minutes since the epoch
	gone      bool  // no longer in the map
	histories [kinds]history
}

// kind is who is counted.
type kind int

const (
	refusals kind = iota
	traffic
	kinds
)

const (
	subjectsBudget = 32 << 20
	mostRuled      = 16 << 10 // rules
	ruledBytes     = int64(unsafe.Sizeof(ruled{})) + 128
)

func newSubjects() *subjects { return newSubjectsWithin(subjectsBudget) }

func newSubjectsWithin(bytes int64) *subjects {
	n := 1
	for n < 2*runtime.GOMAXPROCS(0) && n < 64 {
		n *= 2
	}
	s := &subjects{stripes: make([]stripe, n), rules: make(map[string]*ruled)}
	s.budget.most = bytes
	return s
}

// note counts what a rule has said of a request for the subject of the rule, once for all limits of the
// rule: result is any of them. at is in unix nanoseconds. It does not allocate, beyond when summaries grow. A
// result without a key, such as that of a rule with "block", is not counted.
func (s *subjects) note(o *policy.Observation, result int, name string, said *judgement, at int64) {
	key := o.Key(result)
	if key == "" {
		return
	}
	n := note{rule: name, at: at / 1e6, refused: said.outcome == Deny || said.outcome == WouldDeny, blocked: said.blocked, plan: said.plan}
	s.add(uintptr(unsafe.Pointer(o.Request)), &n, key, o.Sent(result))
}

// stripe is where notes wait, so that those who bring them seldom meet: who fills one hands
// all of it on.
type stripe struct {
	mu    sync.Mutex
	notes [128]note
	n     int
	keys  [8 << 10]byte
	used  int
	_     [64]byte
}

// note is one request of a subject.
type note struct {
	rule             string
	at               int64 // unix milliseconds
	refused, blocked bool
	refusedOnly      bool         // it is not of the traffic
	plan             *sluice.Plan // of the limit that refused it, or has the least left; may be nil
	from, to, sent   uint16       // of keys: the key, and from to until sent how it was spelled, if otherwise
}

// add puts a note into a stripe that no other goroutine is at, by preference always the same for a
// goroutine.
func (s *subjects) add(who uintptr, n *note, key, sent string) {
	if now, before := n.at/slotMillis[Minute], s.swept.Load(); now != before && s.swept.CompareAndSwap(before, now) {
		s.sweep() // before anything newer is counted, since histories only go forward
	}
	first := int(uint64(who) * 0x9e3779b97f4a7c15 >> 32)
	var p *stripe
	for i := 0; ; i++ {
		p = &s.stripes[(first+i)&(len(s.stripes)-1)]
		if p.mu.TryLock() {
			break
		}
		if i == 3 {
			p.mu.Lock()
			break
		}
	}
	defer p.mu.Unlock()
	if len(key) > maxKey {
		key = "" // lost
	}
	if sent == key || len(sent) > maxKey {
		sent = ""
	}
	if p.used+len(key)+len(sent) > len(p.keys) {
		s.empty(p)
	}
	to := p.used + copy(p.keys[p.used:], key)
	end := to + copy(p.keys[to:], sent)
	n.from, n.to, n.sent = uint16(p.used), uint16(to), uint16(end)
	p.notes[p.n] = *n
	p.n, p.used = p.n+1, end
	if p.n == len(p.notes) {
		s.empty(p)
	}
}

// empty counts what waits in a stripe, which the caller has locked.
func (s *subjects) empty(p *stripe) {
	var known [4]*ruled // the last ones: requests are often of the same few rules
	next := 0
	for i := range p.notes[:p.n] {
		n := &p.notes[i]
		r := sameRule(&known, n.rule)
		for r == nil || !r.count(p.keys[n.from:n.to], p.keys[n.to:n.sent], n) {
			if r = s.rule(n.rule, n.at); r == nil {
				break
			}
			known[next%len(known)] = r
			next++
		}
		n.rule, n.plan = "", nil
	}
	p.n, p.used = 0, 0
}

func sameRule(known *[4]*ruled, name string) *ruled {
	for _, r := range known {
		if r != nil && r.name == name {
			return r
		}
	}
	return nil
}

// sweep counts what waits in all stripes.
func (s *subjects) sweep() {
	for i := range s.stripes {
		p := &s.stripes[i]
		p.mu.Lock()
		s.empty(p)
		p.mu.Unlock()
	}
}

// rule returns what is kept of a rule, or nil if there are too many, which counts as lost.
func (s *subjects) rule(name string, at int64) *ruled {
	s.mu.RLock()
	r := s.rules[name]
	s.mu.RUnlock()
	if r != nil {
		return r
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if r = s.rules[name]; r != nil {
		return r
	}
	if len(s.rules) >= mostRuled || !(&account{budget: &s.budget}).take(int(ruledBytes)) {
		s.others.add(at, 1)
		return nil
	}
	r = &ruled{name: name, kept: mostEntries}
	for k := range r.histories {
		r.histories[k].budget = &s.budget
	}
	s.rules[name] = r
	return r
}

// count reports false if the rule was forgotten meanwhile.
func (r *ruled) count(key, sent []byte, n *note) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.gone {
		return false
	}
	r.cool(n.at)
	r.heat++
	e := entry{low: 1, over: 1, first: n.at, last: n.at, minutes: 1 << (n.at / 60_000 % 60), limit: limitOf(n.plan)}
	if !n.refusedOnly {
		r.histories[traffic].count(key, sent, &e, r.kept)
	}
	if n.refused {
		r.heat += 8
		if n.blocked {
			e.blocked = 1
		}
		r.histories[refusals].count(key, sent, &e, r.kept)
	}
	return true
}

// cool halves the heat of a rule every ten minutes.
func (r *ruled) cool(at int64) {
	if now := at / 600_000; now > r.heated {
		r.heat >>= min(now-r.heated, 63)
		r.heated = now
	}
}
