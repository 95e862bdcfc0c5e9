package telemetry

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// A post starts with a version. For each rule, it has the rule's name, and a summary for each kind and window. Rules
// with more denials and requests come first and get more room. Each rule has the same minimum, and all minimums
// together take at most half of the post. In addition, one rule after the other gets an eighth of the room that is
// left.
const (
	postedVersion = 6
	mostPosted    = 256 << 10
	leastPosted   = 768 // the minimum in bytes; less if there are many rules
)

// export returns a post of at most some 256 KiB, or nil if nothing was counted in the last day. It closes slots
// that are over. Call it every few seconds.
func (s *subjects) export(at time.Time) []byte {
	s.exporting.Lock()
	defer s.exporting.Unlock()
	now := at.UnixMilli()
	rules := s.ranked(now)
	if len(rules) == 0 {
		return nil
	}
	post := append(make([]byte, 0, mostPosted), postedVersion)
	least := min(leastPosted, mostPosted/2/len(rules))
	var all summary
	for i, r := range rules {
		before := len(post)
		left := mostPosted - before - least*(len(rules)-i)
		if post = r.append(post, &all, least+max(left, 0)/8, now); len(post) > maxPost { // names are very long
			return post[:before]
		}
	}
	return post
}

// append appends a rule, in at most the given number of bytes. It merges each window into the same summary, the
// parameter scratch, to reuse its memory.
func (r *ruleSubjects) append(dst []byte, scratch *summary, bytes int, at int64) []byte {
	end := len(dst) + bytes
	dst = appendText(dst, r.name)
	r.mu.Lock()
	left := 0 // windows that need room
	for k := range r.histories {
		if !r.histories[k].empty() {
			left += Windows
		}
	}
	r.mu.Unlock()
	for k := range kinds {
		r.mu.Lock()
		encoded := r.histories[k].encodedWindows(at)
		r.mu.Unlock()
		for w := range Window(Windows) {
			scratch.reset(w)
			for _, e := range encoded[w] {
				scratch.merge(&decoder{rest: e})
			}
			dst = scratch.encode(dst, at, (end-len(dst))/max(left, 1))
			if len(encoded[w]) > 0 {
				left--
			}
		}
	}
	return dst
}

// ranked returns the rules with counts, those with the most denials and requests first. It also sets how many
// subjects each rule keeps.
func (s *subjects) ranked(at int64) []*ruleSubjects {
	s.mu.RLock()
	rules := slices.Collect(maps.Values(s.rules))
	s.mu.RUnlock()
	heat := make(map[*ruleSubjects]uint64, len(rules))
	rules = slices.DeleteFunc(rules, func(r *ruleSubjects) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cool(at)
		heat[r] = r.heat
		for k := range r.histories {
			r.histories[k].turn(at)
		}
		return r.empty()
	})
	if len(rules) < len(heat) {
		s.forgetEmpty()
	}
	for _, r := range rules {
		r.fit(entriesOf(len(rules)))
	}
	slices.SortFunc(rules, func(a, b *ruleSubjects) int {
		return cmp.Or(cmp.Compare(heat[b], heat[a]), cmp.Compare(a.name, b.name))
	})
	return rules
}

// forgetEmpty removes rules without counts.
func (s *subjects) forgetEmpty() {
	s.mu.Lock() // no request is counted meanwhile
	defer s.mu.Unlock()
	maps.DeleteFunc(s.rules, func(_ string, r *ruleSubjects) bool { return r.empty() })
}

func (r *ruleSubjects) empty() bool {
	return r.histories[refusals].empty() && r.histories[traffic].empty() && r.histories[spending].empty()
}

// fit makes the histories keep k subjects.
func (r *ruleSubjects) fit(k int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.histories {
		if h := &r.histories[i]; h.k != k {
			h.fit(k)
		}
	}
}
