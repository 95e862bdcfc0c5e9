package telemetry

import (
	"sync"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// subjects keeps, for each rule of one instance, the subjects with the most requests, the most denials and the
// highest costs. Each rule has a history for each of these three, which covers the last minute, hour and day. A history
// has the subjects with the largest counts, with an error of at most 1/257 of the total (see summary). It also has the
// number of subjects, which is exact up to 256. A larger number has a standard error of 2.3 %.
//
// Memory. The current ten seconds of a history have at most 512 subjects of 200 bytes, 32 KiB of keys, and a sketch
// of 2 KiB. Earlier counts are in at most 42 slots (see history), each encoded in at most 12 KiB. So a rule that is
// flooded takes 1.3 MiB, and a quiet one with ten subjects 25 KiB in a day. These sizes apply to up to 32 rules with
// traffic in the last day. With more rules, each keeps fewer subjects (see entriesOf). Measured with all slots
// flooded: 37 MiB for 32 rules, 41 for 64, and 55 for 1,024.
//
// Error. The true count of a subject, over all instances, is from Count-Error to Count. The true count of a subject
// that is missing from a list is at most the list's Error. Error can exceed total/257 if fewer than 256 subjects are
// kept, because there are many rules, keys are long, or a post to the other instances has no room (see export).
// Subjects after the first hundred are not listed, and count as missing.
type subjects struct {
	mu    sync.RWMutex // guards the map; read-locked while requests are counted
	rules map[string]*ruleSubjects

	exporting sync.Mutex
}

// ruleSubjects has the subjects of one rule.
type ruleSubjects struct {
	name string

	mu        sync.Mutex
	heat      uint64      // requests plus eight times the denials, halved every ten minutes
	heated    int64       // when heat was last halved, in units of ten minutes since the epoch
	unit      policy.Unit // unit of spending
	histories [kinds]history
}

// kind is the kind of counts in a history.
type kind int

const (
	refusals kind = iota
	traffic
	spending // weighted by the cost that responses report
	kinds
)

const (
	mostRules    = 1024 // the maximum number of rules, in memory and in a post
	fullRules    = 32   // up to this number of rules, each rule has mostEntries
	leastEntries = 8
)

// entriesOf returns how many subjects a summary of a rule keeps if n rules have traffic. It is a power of two, so
// that it seldom changes.
func entriesOf(n int) int {
	k := mostEntries
	for n > fullRules && k > leastEntries {
		n, k = (n+1)/2, k/2
	}
	return k
}

func newSubjects() *subjects { return &subjects{rules: make(map[string]*ruleSubjects)} }

// note counts a request for its subject under a rule, once for all limits of the rule. The parameter result is the
// index of the result of any of these limits. The time is in Unix nanoseconds. note allocates only for a subject that
// is new in the current ten seconds. It does not count a result without a key, such as that of a rule with "block".
func (s *subjects) note(o *policy.Observation, result int, rule string, j *judgement, at int64) {
	if key := o.Key(result); key != "" {
		n := note{at: at / 1e6, refused: j.outcome == Deny || j.outcome == WouldDeny, blocked: j.blocked, limit: limitOf(j.plan)}
		s.add(rule, key, o.Sent(result), &n)
	}
}

// note is one request of a subject.
type note struct {
	at               int64 // Unix milliseconds
	refused, blocked bool
	refusedOnly      bool // not counted as traffic
	limit            limit
}

// add counts a request of a key. The spelling is the key as the request has it.
func (s *subjects) add(rule, key, spelling string, n *note) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rules[rule]
	for r == nil {
		s.mu.RUnlock()
		admitted := s.admit(rule)
		if s.mu.RLock(); !admitted {
			return
		}
		r = s.rules[rule]
	}
	r.count(key, spelling, n)
}

// admit adds a rule, and reports whether there is room for it.
func (s *subjects) admit(rule string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rules[rule] != nil {
		return true
	}
	if len(s.rules) >= mostRules {
		return false
	}
	r := &ruleSubjects{name: rule}
	s.rules[rule] = r
	for k := range r.histories {
		r.histories[k].begin(entriesOf(len(s.rules)))
	}
	return true
}

func (r *ruleSubjects) count(key, sent string, n *note) {
	if sent == key || len(sent) > maxKey {
		sent = ""
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cool(n.at)
	r.heat++
	e := entry{low: 1, over: 1, first: n.at, last: n.at, minutes: 1 << (n.at / 60_000 % 64), limit: n.limit}
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

// noteCost adds the cost of a response to its subject under a rule. The time is in Unix milliseconds.
func (s *subjects) noteCost(rule, key string, unit policy.Unit, cost uint64, at int64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	r := s.rules[rule]
	if r == nil {
		return // a rule is missing only if there are more than mostRules
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.histories[spending]
	if r.unit != unit {
		r.unit, *h = unit, history{}
		h.begin(r.histories[traffic].k)
	}
	h.count(key, "", &entry{low: cost, over: cost, first: at, last: at, minutes: 1 << (at / 60_000 % 64)})
}

// cool halves the heat of a rule every ten minutes.
func (r *ruleSubjects) cool(at int64) {
	if now := at / (10 * time.Minute).Milliseconds(); now > r.heated {
		r.heat >>= min(now-r.heated, 63)
		r.heated = now
	}
}
