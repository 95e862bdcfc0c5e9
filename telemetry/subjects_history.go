package telemetry

import "slices"

// history is what is known of the subjects of one rule: the refused ones, or all. The ten seconds that
// are under way have a summary. Earlier time is kept as encoded summaries, of each ten seconds of a minute, five
// minutes of an hour and hour of a day. A window is merged from these and the summary. It reaches back to the
// beginning of its first slot, so a minute is between 50 and 60 seconds.
type history struct {
	now  summary
	slot int64 // number of the ten seconds of now, since the epoch
	past [Windows][]slot
	lost losses
	account
}

type slot struct {
	number  int64  // since the epoch
	most    uint64 // that any subject has
	total   uint64
	encoded []byte
}

var (
	slotMillis = [Windows]int64{10_000, 300_000, 3_600_000}
	slotCount  = [Windows]int64{6, 12, 24}
)

const (
	slotBytes = 64       // of a slot without its summary
	mostSlot  = 16 << 10 // bytes of an encoded summary
)

// count counts one request of a key. A request without a key is lost.
func (h *history) count(key, sent []byte, e *entry) {
	h.turn(e.last)
	if len(key) == 0 || !h.now.add(key, sent, e) {
		h.now.floor++
	}
	h.now.total++
}

// turn closes the ten seconds if they are over. A clock that steps back by less than a minute leaves them
// open.
func (h *history) turn(at int64) {
	number := at / slotMillis[Minute]
	if number == h.slot || number < h.slot && h.slot-number <= slotCount[Minute] {
		return
	}
	h.close()
	h.slot = number
	for w := range h.past {
		h.prune(Window(w), at)
	}
}

// close moves what was counted in the ten seconds into slots.
func (h *history) close() {
	if h.now.total > 0 {
		end := (h.slot + 1) * slotMillis[Minute]
		total, most := h.now.total, h.now.most()
		encoded := h.now.encode(nil, end, mostSlot)
		for w := range h.past {
			if !h.keep(Window(w), slot{h.slot * slotMillis[Minute] / slotMillis[w], most, total, encoded}, end) {
				h.lost.addTo(Window(w), end-1, total)
			}
		}
	}
	h.give(h.now.bytes())
	h.now = newSummary(Minute, &h.account)
}

// keep adds a slot of ten seconds to the slot of a window.
func (h *history) keep(w Window, s slot, at int64) bool {
	past := h.past[w]
	last := len(past) - 1
	if last < 0 || past[last].number != s.number {
		if !h.take(slotBytes + len(s.encoded)) {
			return false
		}
		h.past[w] = append(past, s)
		return true
	}
	both := merged(w, past[last].encoded, s.encoded)
	s.total, s.most, s.encoded = both.total, both.most(), both.encode(nil, at, mostSlot)
	if !h.take(len(s.encoded) - len(past[last].encoded)) {
		return false
	}
	past[last] = s
	return true
}

// merged returns the sum of summaries that were written here.
func merged(w Window, encoded ...[]byte) *summary {
	s := newSummary(w, nil)
	for _, e := range encoded {
		s.merge(&decoder{rest: e})
	}
	return &s
}

// within reports whether a slot belongs to the window that ends at a time. A slot of the future does, up to
// the length of the window: clocks are set back.
func (s *slot) within(w Window, at int64) bool {
	now := at / slotMillis[w]
	return s.number > now-slotCount[w] && s.number <= now+slotCount[w]
}

// prune removes the slots outside the window.
func (h *history) prune(w Window, at int64) {
	h.past[w] = slices.DeleteFunc(h.past[w], func(s slot) bool {
		out := !s.within(w, at)
		if out {
			h.give(slotBytes + len(s.encoded))
		}
		return out
	})
	if len(h.past[w]) == 0 {
		h.past[w] = nil
	}
}

// shrink leaves no slot with more than room bytes, and without room no slot.
func (h *history) shrink(room int, at int64) {
	h.close()
	for w := range h.past {
		for i := range h.past[w] {
			s := &h.past[w][i]
			if room == 0 {
				h.lost.addTo(Window(w), at, s.total)
				h.give(slotBytes + len(s.encoded))
			} else if len(s.encoded) > room {
				less := merged(Window(w), s.encoded).encode(nil, (s.number+1)*slotMillis[w], room)
				h.give(len(s.encoded) - len(less))
				s.encoded = less
			}
		}
		if room == 0 {
			h.past[w] = nil
		}
	}
}

// most returns an upper bound of what any subject has in a window.
func (h *history) most(w Window, at int64) uint64 {
	most := h.now.most() + h.lost.within(w, at)
	for i := range h.past[w] {
		most += h.past[w][i].most
	}
	return most
}

// empty reports whether nothing is known.
func (h *history) empty(at int64) bool {
	return h.now.total == 0 && len(h.past[Minute])+len(h.past[Hour])+len(h.past[Day]) == 0 && h.lost.within(Day, at) == 0
}

// snapshot is a history at one time, to be merged without its lock.
type snapshot struct {
	now  []byte
	past [Windows][]slot
	lost [Windows]uint64
}

func (h *history) snapshot(at int64) (s snapshot) {
	if h.now.total > 0 {
		s.now = h.now.append(nil, at, sketchBytes)
	}
	for w := range h.past {
		s.past[w] = slices.Clone(h.past[w]) // encoded summaries do not change
		s.lost[w] = h.lost.within(Window(w), at)
	}
	return s
}

// window sets all to what is known of a window.
func (s *snapshot) window(w Window, all *summary) {
	all.reset(w)
	for i := range s.past[w] {
		all.merge(&decoder{rest: s.past[w][i].encoded})
	}
	if s.now != nil {
		all.merge(&decoder{rest: s.now})
	}
	all.floor += s.lost[w]
	all.total += s.lost[w]
}

// losses counts requests that no slot has, for each window in two periods that are each as long as the
// window, so the count of a window is never too small. Clocks that step back change nothing.
type losses [Windows]struct {
	period      int64 // number of now
	now, before uint64
}

var windowMillis = [Windows]int64{60_000, 3_600_000, 86_400_000}

func (l *losses) add(at int64, n uint64) {
	for w := range l {
		l.addTo(Window(w), at, n)
	}
}

func (l *losses) addTo(w Window, at int64, n uint64) {
	p := &l[w]
	if period := at / windowMillis[w]; period > p.period {
		p.before = 0
		if period == p.period+1 {
			p.before = p.now
		}
		p.period, p.now = period, 0
	}
	p.now += n
}

func (l *losses) within(w Window, at int64) uint64 {
	switch p := &l[w]; max(0, at/windowMillis[w]-p.period) {
	case 0:
		return p.now + p.before
	case 1:
		return p.now
	default:
		return 0
	}
}
