package telemetry

// history is what is known of the subjects of one rule: those who were refused, or all who asked.
// Of the ten seconds that have begun there is a summary. What is over is kept as it was
// written, for each ten seconds of a minute, five minutes of an hour, and hour of a day. A window is
// merged of them, and of the summary: it reaches back to the beginning of the first of these, so
// a minute is between 50 and 60 seconds.
type history struct {
	now  summary
	slot int64 // number of the ten seconds that it is of, since the epoch
	past [Windows][]slot
	// joined is all slots of a window, if they were joined since they have changed last.
	joined  [Windows][]byte
	changed int // how often they did
	lost    losses
	account
}

type slot struct {
	number int64  // since the epoch
	most   uint64 // that any subject has
	said   []byte
}

func newSlot(number int64, said []byte) slot {
	d := decoder{rest: said}
	d.head()
	floor, entries := d.uvarint(maxCount), d.uvarint(maxCount)
	most := floor
	if entries > 0 {
		d.uvarint(0)
		d.bytes(d.uvarint(maxKey))
		d.uvarint(maxCount)
		most += d.uvarint(maxCount)
	}
	return slot{number, most, said}
}

var (
	slotMillis = [Windows]int64{10_000, 300_000, 3_600_000}
	slotCount  = [Windows]int64{6, 12, 24}
)

const (
	slotBytes = 64       // of a slot without what is said
	mostSaid  = 16 << 10 // bytes of a slot
)

// count counts one request of a key, which is lost if it has none, and keeps k subjects at least if there is memory for them.
func (h *history) count(key, sent []byte, e *entry, k int) {
	h.turn(e.last, k)
	if len(key) == 0 || !h.now.add(key, sent, e, k, &h.account) {
		h.lost.add(e.last, 1)
		return
	}
	h.now.total++
}

// turn closes the ten seconds that are over. Clocks that step back by less than a minute leave
// them open.
func (h *history) turn(at int64, k int) {
	number := at / slotMillis[Minute]
	if number == h.slot || number < h.slot && h.slot-number <= slotCount[Minute] {
		return
	}
	if h.now.total > 0 {
		h.close(k)
	} else {
		h.release()
	}
	h.slot = number
	h.part()
	for w := range h.past {
		h.prune(Window(w), at)
	}
}

// release gives back the memory of the summary.
func (h *history) release() {
	h.give(h.now.bytes())
	h.now = summary{}
}

// part forgets how slots were joined.
func (h *history) part() {
	for w := range h.joined {
		h.give(len(h.joined[w]))
		h.joined[w] = nil
	}
	h.changed++
}

// close keeps what the ten seconds have seen, and begins anew.
func (h *history) close(k int) {
	at := (h.slot + 1) * slotMillis[Minute]
	used, total := len(h.now.entries), h.now.total
	said := h.now.encode(nil, at, k, mostSaid)
	for w := range h.past {
		if !h.keep(Window(w), said, k) {
			h.lost.addTo(Window(w), at-1, total)
		}
	}
	h.now.reset()
	if used*8 < cap(h.now.entries) {
		h.release()
	}
}

// keep adds what the ten seconds have seen to the slot of a window.
func (h *history) keep(w Window, said []byte, k int) bool {
	number := h.slot * slotMillis[Minute] / slotMillis[w]
	past := h.past[w]
	if last := len(past) - 1; last >= 0 && past[last].number == number {
		h.now.reset()
		h.now.merge(&decoder{rest: past[last].said}, k, &h.account)
		h.now.merge(&decoder{rest: said}, k, &h.account)
		if w == Day {
			for i := range h.now.entries {
				h.now.entries[i].minutes = 0 // they are told of an hour
			}
		}
		more := h.now.encode(nil, (h.slot+1)*slotMillis[Minute], k, mostSaid)
		if !h.take(len(more) - len(past[last].said)) {
			return false
		}
		past[last] = newSlot(number, more)
		return true
	}
	if !h.take(slotBytes + len(said)) {
		return false
	}
	h.past[w] = append(past, newSlot(number, said))
	return true
}

// within reports whether a slot is of the window that ends at a time. One that is to come is, too,
// up to the length of the window: clocks are set back.
func (s *slot) within(w Window, at int64) bool {
	now := at / slotMillis[w]
	return s.number > now-slotCount[w] && s.number <= now+slotCount[w]
}

// prune forgets what is out of the window.
func (h *history) prune(w Window, at int64) {
	kept := h.past[w][:0]
	for _, s := range h.past[w] {
		if s.within(w, at) {
			kept = append(kept, s)
		} else {
			h.give(slotBytes + len(s.said))
		}
	}
	clear(h.past[w][len(kept):])
	if h.past[w] = kept; len(kept) == 0 {
		h.past[w] = nil
	}
}

// shrink leaves k subjects of each slot at most, and with 0 none of them.
func (h *history) shrink(k int, at int64) {
	if h.now.total > 0 {
		h.close(k)
	}
	h.release()
	h.part()
	for w := range h.past {
		for i := range h.past[w] {
			s := &h.past[w][i]
			if k == 0 {
				_, total := (&decoder{rest: s.said}).head()
				h.lost.addTo(Window(w), at, total)
				h.give(slotBytes + len(s.said))
				continue
			}
			var all summary
			all.merge(&decoder{rest: s.said}, mostEntries, nil)
			less := all.encode(nil, (s.number+1)*slotMillis[w], k, mostSaid)
			h.give(len(s.said) - len(less))
			*s = newSlot(s.number, less)
		}
		if k == 0 {
			h.past[w] = nil
		}
	}
}

// most returns the most that any subject has in a window, or more.
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

// losses counts what no summary has, for each window in two parts, which are each as long
// as the window: so what it says of a window is never too little. Clocks that step back change
// nothing.
type losses [Windows]struct {
	part        int64 // number of now
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
	if part := at / windowMillis[w]; part > p.part {
		p.before = 0
		if part == p.part+1 {
			p.before = p.now
		}
		p.part, p.now = part, 0
	}
	p.now += n
}

func (l *losses) within(w Window, at int64) uint64 {
	switch p := &l[w]; max(0, at/windowMillis[w]-p.part) {
	case 0:
		return p.now + p.before
	case 1:
		return p.now
	default:
		return 0
	}
}
