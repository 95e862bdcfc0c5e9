package telemetry

import (
	"cmp"
	"encoding/binary"
	"slices"
	"time"
)

// What is posted is: a version; for each kind and window what a subject of a rule that is not told
// of can have at most; the number of rules; and for each rule its name and, for each kind and window,
// a summary. Rules with more refusals and traffic come first and have more room: half of it is for the
// least that the first rules may take, and each has an eighth of what is left beyond that.
const (
	saidVersion = 3
	saidBefore  = 2 // what is read of older instances: no blocks, limits and spellings
	mostPosted  = 256 << 10
	leastPosted = 768  // bytes that a rule may take
	mostTold    = 1024 // rules
)

// export returns what is to be posted, at most 256 KiB, or nil if nothing was counted in the last
// day. It closes what is over: call it every few seconds.
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
	rest := [kinds][Windows]uint64{unnamed, unnamed}
	const head = 1 + int(kinds)*Windows*binary.MaxVarintLen64 + binary.MaxVarintLen64
	told, body := 0, make([]byte, 0, mostPosted)
	var merged summary
	var seen state
	for i, r := range rules {
		left := mostPosted - head - len(body)
		if left < leastPosted || told == mostTold {
			break
		}
		told++
		reserved := max(min(len(rules), mostPosted/2/leastPosted)-i, 1)
		room := leastPosted + (left-reserved*leastPosted)/8 - binary.MaxVarintLen64 - len(r.name)
		body = binary.AppendUvarint(body, uint64(len(r.name)))
		body = append(body, r.name...)
		for k := range kinds {
			r.look(&seen, k, now)
			for w := range Window(Windows) {
				r.window(&merged, &seen, w, now)
				merged.floor += unnamed[w]
				before := len(body)
				body = merged.encode(body, now, mostEntries, room/(int(kinds-k-1)*Windows+Windows-int(w)))
				room -= len(body) - before
			}
		}
	}
	for _, r := range rules[told:] {
		r.mu.Lock()
		for k := range kinds {
			for w := range rest[k] {
				rest[k][w] = max(rest[k][w], unnamed[w]+r.histories[k].most(Window(w), now))
			}
		}
		r.mu.Unlock()
	}
	said := append(make([]byte, 0, head+len(body)), saidVersion)
	for k := range rest {
		for w := range rest[k] {
			said = binary.AppendUvarint(said, rest[k][w])
		}
	}
	return append(binary.AppendUvarint(said, uint64(told)), body...)
}

// ranked counts all that waits, and returns the rules of which anything is known, those with the
// most refusals and traffic first.
func (s *subjects) ranked(at int64) []*ruled {
	s.sweep()
	s.mu.RLock()
	rules := make([]*ruled, 0, len(s.rules))
	for _, r := range s.rules {
		rules = append(rules, r)
	}
	s.mu.RUnlock()

	heat := make(map[*ruled]uint64, len(rules))
	var gone []string
	rules = slices.DeleteFunc(rules, func(r *ruled) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.cool(at)
		heat[r] = r.heat
		empty := true
		for k := range r.histories {
			r.histories[k].turn(at, r.kept)
			empty = empty && r.histories[k].empty(at)
		}
		if empty {
			gone = append(gone, r.name)
		}
		return empty
	})
	s.forget(gone, at)
	slices.SortFunc(rules, func(a, b *ruled) int {
		return cmp.Or(cmp.Compare(heat[b], heat[a]), cmp.Compare(a.name, b.name))
	})
	return rules
}

// lostOthers returns how much is lost of which the rule is not known.
func (s *subjects) lostOthers(at int64) (n [Windows]uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for w := range n {
		n[w] = s.others.within(Window(w), at)
	}
	return n
}

// state is what a history has seen, to be merged without its lock.
type state struct {
	history *history
	changed int
	now     []byte
	past    [Windows][]slot
	joined  [Windows][]byte
	lost    [Windows]uint64
}

func (r *ruled) look(seen *state, k kind, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.histories[k]
	seen.history, seen.changed, seen.joined = h, h.changed, h.joined
	if seen.now = seen.now[:0]; h.now.total > 0 {
		seen.now = h.now.encode(seen.now, at, 2*mostEntries, 2*mostText)
	}
	for w := range h.past {
		seen.past[w] = append(seen.past[w][:0], h.past[w]...) // nobody changes what they say
		seen.lost[w] = h.lost.within(Window(w), at)
	}
}

// window makes merged what is known of a window.
func (r *ruled) window(merged *summary, seen *state, w Window, at int64) {
	merged.reset()
	if seen.joined[w] != nil {
		merged.merge(&decoder{rest: seen.joined[w]}, mostEntries, nil)
	} else {
		for _, s := range seen.past[w] {
			merged.merge(&decoder{rest: s.said, stepped: w == Hour}, mostEntries, nil)
		}
		if len(seen.past[w]) > 1 {
			joined := merged.encode(nil, at, mostEntries, mostSaid)
			r.mu.Lock()
			if h := seen.history; h.changed == seen.changed && h.take(len(joined)) {
				h.joined[w] = joined
			}
			r.mu.Unlock()
		}
	}
	if len(seen.now) > 0 {
		merged.merge(&decoder{rest: seen.now, stepped: w == Hour}, mostEntries, nil)
	}
	merged.floor += seen.lost[w]
	merged.total += seen.lost[w]
}

// forget drops rules of which nothing is known.
func (s *subjects) forget(names []string, at int64) {
	if len(names) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range names {
		r := s.rules[name]
		r.mu.Lock()
		if r.histories[refusals].empty(at) && r.histories[traffic].empty(at) {
			for k := range r.histories {
				r.histories[k].release()
			}
			r.gone = true
			s.budget.used.Add(-ruledBytes)
			delete(s.rules, name)
		}
		r.mu.Unlock()
	}
}
