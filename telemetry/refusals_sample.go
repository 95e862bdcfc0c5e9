package telemetry

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"sync"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// refusalSampler selects denials: the first ones of each subject, then fewer and fewer, so that no subject displaces
// the others.
type refusalSampler struct {
	first    uint64 // how many denials of a subject are all selected
	seed     maphash.Seed
	subjects *[subjectSets]subjectSet
}

func newRefusalSampler(first uint64) refusalSampler {
	return refusalSampler{first, maphash.MakeSeed(), new([subjectSets]subjectSet)}
}

// hashOf returns a hash that identifies the subject of result i, or the address if the result has no key. It also
// returns the rule under which the subject is counted.
func (l *refusalSampler) hashOf(o *policy.Observation, i int) (hash uint64, rule string) {
	key, rule := "", refusalsOfMalformed
	if load := i - len(o.Decision.Results); i >= 0 && load >= 0 {
		l := &o.Decision.Loads[load]
		rule = l.Rule // no key: the key of such a rule is usually an upstream and not a client
	} else if i >= 0 {
		key, rule = o.Key(i), o.Decision.Results[i].Rule
		if o.RuleIndex(i) < 0 {
			rule = refusalsOfCallers
		}
	}
	var client netip.Addr
	if key == "" {
		client = o.Client()
	}
	return l.hash(rule, key, client), rule
}

func (l *refusalSampler) hash(rule, key string, client netip.Addr) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.WriteString(rule)
	_ = h.WriteByte(0)
	_, _ = h.WriteString(key)
	if client.IsValid() {
		a := client.As16()
		_, _ = h.Write(a[:])
	}
	return h.Sum64() | 1 // never 0, which marks a free entry
}

// The hash of a subject selects one of the sets, which has entries for eight subjects.
const (
	subjectSets = 512
	setSize     = 8
)

type subjectSet struct {
	mu      sync.Mutex
	entries [setSize]refusedSubject
}

type refusedSubject struct {
	hash           uint64 // 0: the entry is free
	rule           string
	count, leftOut uint64
	at             int64 // the time of the last denial, in unix nanoseconds
}

// sample counts a denial. It returns how many denials of the subject were left out before it, whether the denial is
// selected, and the subject that was displaced, if any.
func (l *refusalSampler) sample(hash uint64, rule string, now time.Time) (leftOut uint64, due bool, gone refusedSubject) {
	at := now.UnixNano()
	set := &l.subjects[hash>>32%subjectSets]
	set.mu.Lock()
	s := set.entry(hash)
	if s.hash != hash {
		gone = *s
		*s = refusedSubject{hash: hash, rule: rule}
	}
	if s.at != 0 && at-s.at > int64(forgetAfter) {
		s.count = 0
	}
	s.count++
	s.at = at
	if due = s.count <= l.first || bits.OnesCount64(s.count) == 1; due {
		leftOut, s.leftOut = s.leftOut, 0
	} else {
		s.leftOut++
	}
	set.mu.Unlock()
	return leftOut, due, gone
}

// entry returns the entry of hash. If hash has no entry yet, it returns a free one, or the one with the oldest last
// denial.
func (s *subjectSet) entry(hash uint64) *refusedSubject {
	found := &s.entries[0]
	for i := range s.entries {
		p := &s.entries[i]
		if p.hash == hash {
			return p
		}
		if p.at < found.at { // at is 0 in a free entry
			found = p
		}
	}
	return found
}
