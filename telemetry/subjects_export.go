package telemetry

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// A post is: a version; for each kind and window an upper bound for a subject of a rule that is not in
// the post; the number of rules; and for each rule its name and, for each kind and window, a summary. Rules with
// more refusals and traffic come first and have more room: half of the post is for the least that the
// first rules may take, and each has an eighth of what is left beyond that.
const (
	postedVersion = 4
	mostPosted    = 256 << 10
	leastPosted   = 768  // bytes that a rule may take
	mostRules     = 1024 // in a post
)

// export returns what is to be posted, at most 256 KiB, or nil if nothing was counted in the last day. It
// closes the slots that are over: call it every few seconds.
func (s *subjects) export(at time.Time) []byte {
	s.exporting.Lock()
	defer s.exporting.Unlock()
	now := at.UnixMilli()
	rules := s.ranked(now)
	if len(rules) == 0 {
		return nil
	}
	s.share(rules, now)
	unnamed := s.lostOthers(now)
	const head = 1 + int(kinds)*Windows*binary.MaxVarintLen64 + binary.MaxVarintLen64
	posted, body := 0, make([]byte, 0, mostPosted)
	var all summary
	for i, r := range rules {
		left := mostPosted - head - len(body)
		if left < leastPosted+len(r.name) || posted == mostRules {
			break
		}
		posted++
		reserved := max(min(len(rules), mostPosted/2/leastPosted)-i, 1)
		body = r.append(body, &all, leastPosted+(left-reserved*leastPosted)/8, unnamed, now)
	}
	rest := [kinds][Windows]uint64{unnamed, unnamed}
	for _, r := range rules[posted:] {
		r.mu.Lock()
		for k := range kinds {
			for w := range rest[k] {
				rest[k][w] = max(rest[k][w], unnamed[w]+r.histories[k].most(Window(w), now))
			}
		}
		r.mu.Unlock()
	}
	post := append(make([]byte, 0, head+len(body)), postedVersion)
	for k := range rest {
		for w := range rest[k] {
			post = binary.AppendUvarint(post, rest[k][w])
		}
	}
	return append(binary.AppendUvarint(post, uint64(posted)), body...)
}

// append appends a rule in room bytes. It uses all for its windows.
func (r *ruled) append(dst []byte, all *summary, room int, unnamed [Windows]uint64, at int64) []byte {
	before := len(dst)
	dst = appendText(dst, r.name)
	for k := range kinds {
		r.mu.Lock()
		seen := r.histories[k].snapshot(at)
		r.mu.Unlock()
		for w := range Window(Windows) {
			seen.window(w, all)
			all.floor += unnamed[w]
			left := room - (len(dst) - before)
			dst = all.encode(dst, at, left/(int(kinds-k)*Windows-int(w)))
		}
	}
	return dst
}

// ranked counts all that waits, and returns the rules of which anything is known, those with the most
// refusals and traffic first.
func (s *subjects) ranked(at int64) []*ruled {
	s.sweep()
	s.mu.RLock()
	rules := make([]*ruled, 0, len(s.rules))
	for _, r := range s.rules {
		rules = append(rules, r)
	}
	s.mu.RUnlock()

	heat := make(map[*ruled]uint64, len(rules))
	var empty []*ruled
	rules = slices.DeleteFunc(rules, func(r *ruled) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cool(at)
		heat[r] = r.heat
		for k := range r.histories {
			r.histories[k].turn(at)
		}
		if r.empty(at) {
			empty = append(empty, r)
			return true
		}
		return false
	})
	s.forget(empty, at)
	slices.SortFunc(rules, func(a, b *ruled) int {
		return cmp.Or(cmp.Compare(heat[b], heat[a]), cmp.Compare(a.name, b.name))
	})
	return rules
}

// forget removes rules of which nothing is known.
func (s *subjects) forget(rules []*ruled, at int64) {
	if len(rules) == 0 {
		return
	}
	s.mu.Lock() // no request is counted meanwhile
	defer s.mu.Unlock()
	for _, r := range rules {
		if r.empty(at) {
			s.budget.give(ruledBytes)
			delete(s.rules, r.name)
		}
	}
}

func (r *ruled) empty(at int64) bool {
	return r.histories[refusals].empty(at) && r.histories[traffic].empty(at)
}

// lostOthers returns how many requests of unknown rules are lost.
func (s *subjects) lostOthers(at int64) (n [Windows]uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for w := range n {
		n[w] = s.others.within(Window(w), at)
	}
	return n
}
