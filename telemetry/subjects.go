package telemetry

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// subjects keeps the subjects of each rule of one instance that are refused most and that ask most. Each
// rule has two histories (see history), each with the last minute, hour and day: the subjects with the largest
// counts, with an error of at most 1/257 of the total (see summary), and how many subjects there were, with a
// standard error of 2.3 % beyond 256 of them, and exactly below.
//
// Memory. A subject of the ten seconds that are under way takes 144 bytes and its key; a history has 512 of
// them at most, with 64 KiB of keys, and 2 KiB for a sketch: 90 KiB where keys have 32 bytes. A closed slot takes 64
// bytes, some 30 for each of at most 256 subjects, and 2 KiB for a sketch, at most 16 KiB; there are 42 at
// most. So a rule that is flooded takes 2·(90 + 42·10) KiB = 1 MiB, and a quiet one with ten subjects 25 KiB in
// a day. All rules together take no more than a budget of 32 MiB, whatever their number and that of their keys.
// A rule that needs more than is left gets less: summaries stay small, and requests that are in none count as
// lost, which adds to the reported error. share takes from the rules with the fewest refusals and requests.
// Not in the budget are 64 stripes at most of 14 KiB, 1 MiB while an export is made, and 90 KiB for each core while
// it closes a slot.
//
// Error. Count-Error ≤ true ≤ Count holds for all instances together, and a missing subject has at
// most the Error of its list. Error is larger than total/257 where keys are so long, or memory so short, that less
// than 256 subjects are kept, where a post has no room for as many (see export), where requests were
// lost, and for the subjects behind the first hundred, which are not listed. A request belongs to the ten seconds
// in which it leaves its stripe, as a rule those in which it came.
type subjects struct {
	budget  budget
	stripes []stripe
	swept   atomic.Int64 // number of the ten seconds in which all stripes were last emptied

	mu     sync.RWMutex // of the map; read-locked while requests are counted
	rules  map[string]*ruled
	others losses // of rules for which there is no memory

	exporting sync.Mutex
}

// ruled is what is kept of one rule.
type ruled struct {
	name string

	mu        sync.Mutex
	heat      uint64
	heated    int64 // ten minutes since the epoch
	histories [kinds]history
}

// kind is which requests are counted.
type kind int

const (
	refusals kind = iota
	traffic
	kinds
)

const (
	subjectsBudget = 32 << 20
	ruledBytes     = int(unsafe.Sizeof(ruled{})) + 128
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

// note counts a request for its subject by a rule, once for all limits of the rule: result is any of
// them. at is in unix nanoseconds. It allocates only for a subject that was not seen in the last ten seconds. A result
// without a key, such as that of a rule with "block", is not counted.
func (s *subjects) note(o *policy.Observation, result int, name string, said *judgement, at int64) {
	key := o.Key(result)
	if key == "" {
		return
	}
	n := note{rule: name, at: at / 1e6, refused: said.outcome == Deny || said.outcome == WouldDeny, blocked: said.blocked, plan: said.plan}
	s.add(uintptr(unsafe.Pointer(o.Request)), &n, key, o.Sent(result))
}

// stripe is a buffer of notes, so that goroutines seldom wait for each other. The goroutine that fills it
// counts them all.
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
	refusedOnly      bool         // not counted as traffic
	plan             *sluice.Plan // of the limit that refused it, or has the least left; may be nil
	from, to, sent   uint16       // keys[from:to] is the key, keys[to:sent] its original spelling if that differs
}

// add puts a note into a stripe that no other goroutine has locked. Calls with the same who prefer the same stripe.
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
	s.mu.RLock()
	for i := range p.notes[:p.n] {
		n := &p.notes[i]
		r := s.rules[n.rule]
		for r == nil {
			s.mu.RUnlock()
			admitted := s.admit(n)
			if s.mu.RLock(); !admitted {
				break
			}
			r = s.rules[n.rule]
		}
		if r != nil {
			r.count(p.keys[n.from:n.to], p.keys[n.to:n.sent], n)
		}
		n.rule, n.plan = "", nil
	}
	s.mu.RUnlock()
	p.n, p.used = 0, 0
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

// admit adds the rule of a note, or counts the note as lost if there is no memory for the rule.
func (s *subjects) admit(n *note) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules[n.rule] != nil {
		return true
	}
	if !s.budget.take(ruledBytes) {
		s.others.add(n.at, 1)
		return false
	}
	r := &ruled{name: n.rule}
	for k := range r.histories {
		h := &r.histories[k]
		h.budget = &s.budget
		h.now = newSummary(Minute, &h.account)
	}
	s.rules[n.rule] = r
	return true
}

func (r *ruled) count(key, sent []byte, n *note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cool(n.at)
	r.heat++
	e := entry{low: 1, over: 1, first: n.at, last: n.at, minutes: 1 << (n.at / 60_000 % 64), limit: limitOf(n.plan)}
	if !n.refusedOnly {
		r.histories[traffic].count(key, sent, &e)
	}
	if n.refused {
		r.heat += 8
		if n.blocked {
			e.blocked = 1
		}
		r.histories[refusals].count(key, sent, &e)
	}
}

// cool halves the heat of a rule every ten minutes.
func (r *ruled) cool(at int64) {
	if now := at / 600_000; now > r.heated {
		r.heat >>= min(now-r.heated, 63)
		r.heated = now
	}
}
