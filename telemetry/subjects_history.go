package telemetry

import "slices"

// history has the requests, the denials or the spending of the subjects of one rule. The current ten seconds have a
// summary. Earlier counts are kept as encoded summaries in slots. A slot covers ten seconds of the last minute, five
// minutes of the last hour, or an hour of the last day. The counts of a window are the sum of its slots and the
// summary. A window reaches back to the beginning of its first slot, so a minute has from 50 to 60 seconds.
type history struct {
	k    int     // how many subjects a summary keeps
	now  summary // of the current ten seconds
	slot int64   // the number of the current ten seconds: Unix milliseconds divided by 10,000
	past [Windows][]slot
}

type slot struct {
	number  int64 // Unix milliseconds divided by the length of the slot
	encoded []byte
}

var (
	slotMillis = [Windows]int64{10_000, 300_000, 3_600_000}
	slotCount  = [Windows]int64{6, 12, 24}
)

// entryEncoded is the room for each of the k subjects in an encoded slot, in bytes.
const entryEncoded = 48

// begin starts an empty summary of the current ten seconds, with room for k subjects.
func (h *history) begin(k int) {
	h.k, h.now = k, newSummary(Minute)
	h.now.k = k
}

// count adds a request, or its cost. If the key is too long to keep, count adds to the floor of the summary instead,
// and so to its error.
func (h *history) count(key, sent string, e *entry) {
	h.turn(e.last)
	if len(key) > maxKey {
		h.now.floor += e.low
	} else {
		h.now.add(key, sent, e)
	}
	h.now.total += e.low
}

// turn closes the current ten seconds if they are over. If the clock steps back by up to a minute, turn leaves them
// open.
func (h *history) turn(at int64) {
	number := at / slotMillis[Minute]
	if number == h.slot || number < h.slot && h.slot-number <= slotCount[Minute] {
		return
	}
	h.close()
	h.slot = number
	for w := range h.past {
		h.past[w] = slices.DeleteFunc(h.past[w], func(s slot) bool { return !s.within(Window(w), at) })
		if len(h.past[w]) == 0 {
			h.past[w] = nil
		}
	}
}

// close moves the counts of the current ten seconds into slots.
func (h *history) close() {
	if h.now.total > 0 {
		end := (h.slot + 1) * slotMillis[Minute]
		encoded := h.now.encode(nil, end, h.room())
		for w := range h.past {
			h.keep(Window(w), slot{h.slot * slotMillis[Minute] / slotMillis[w], encoded}, end)
		}
	}
	h.begin(h.k)
}

// room returns the maximum size of an encoded slot, in bytes.
func (h *history) room() int { return entryEncoded * h.k }

// keep adds the counts of ten seconds to the last slot of a window, or starts a new slot if s has a new number.
func (h *history) keep(w Window, s slot, at int64) {
	past := h.past[w]
	if last := len(past) - 1; last >= 0 && past[last].number == s.number {
		past[last].encoded = merged(w, past[last].encoded, s.encoded).encode(nil, at, h.room())
		return
	}
	h.past[w] = append(past, s)
}

// merged returns the sum of summaries that the method close has encoded.
func merged(w Window, encoded ...[]byte) *summary {
	s := newSummary(w)
	for _, e := range encoded {
		s.merge(&decoder{rest: e})
	}
	return &s
}

// within reports whether a slot belongs to the window that ends at the time at. A slot in the future belongs to the
// window, too, if it is ahead by at most the length of the window, because clocks may be set back.
func (s *slot) within(w Window, at int64) bool {
	now := at / slotMillis[w]
	return s.number > now-slotCount[w] && s.number <= now+slotCount[w]
}

// fit makes later summaries keep k subjects, and shortens slots that are too large for k subjects.
func (h *history) fit(k int) {
	h.k = k
	for w := range h.past {
		for i := range h.past[w] {
			if s := &h.past[w][i]; len(s.encoded) > h.room() {
				s.encoded = merged(Window(w), s.encoded).encode(nil, (s.number+1)*slotMillis[w], h.room())
			}
		}
	}
}

// empty reports whether the history has no counts.
func (h *history) empty() bool {
	return h.now.total == 0 && len(h.past[Minute])+len(h.past[Hour])+len(h.past[Day]) == 0
}

// encodedWindows has the encoded summaries of each window. They do not change, so they can be merged
// without the lock of their history.
type encodedWindows [Windows][][]byte

func (h *history) encodedWindows(at int64) (all encodedWindows) {
	var now []byte
	if h.now.total > 0 {
		now = h.now.append(nil, at, sketchBytes)
	}
	for w := range all {
		for i := range h.past[w] {
			all[w] = append(all[w], h.past[w][i].encoded)
		}
		if now != nil {
			all[w] = append(all[w], now)
		}
	}
	return all
}
