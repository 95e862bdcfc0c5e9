package telemetry

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
)

// An instance posts its counts in two parts of one form: those of the last minutes every few seconds, and all of
// them once a minute. Readers need both.
//
// A post starts with two bytes for its form and version. Then come numbers as varints and texts after their
// length: the head, the events, and for all requests and each rule the counts of two lists of steps. Counts are
// written column by column, since most columns have only zeros. A zero is followed by the number of zeros after it.

const (
	postForm    = 'S'
	postVersion = 2

	maxName  = 200       // bytes of a name
	maxPost  = 512 << 10 // bytes: rules at the end of the document are left out
	maxValue = 1 << 40   // of a count
)

// head is what a post has besides counts.
type head struct {
	Instance                    // without Self, Seen, Stale and Differs
	id                   string // of this run of the instance
	at                   time.Time
	fromRecent, fromLong int64 // the first steps in the post
	events               []Event
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

func appendLatency(dst []byte, l Latency) []byte {
	dst = binary.AppendUvarint(dst, l.Count)
	dst = binary.AppendUvarint(dst, uint64(l.P50))
	return binary.AppendUvarint(dst, uint64(l.P99))
}

// appendHead starts a post.
func appendHead(dst []byte, h *head) []byte {
	dst = append(dst, postForm, postVersion)
	for _, s := range []string{h.id, h.Name, h.Version, h.Policy, h.Store.Kind} {
		dst = appendText(dst, s)
	}
	dst = binary.AppendVarint(dst, h.Started.UnixNano())
	dst = binary.AppendVarint(dst, h.at.UnixNano())
	for _, n := range []uint64{
		uint64(h.fromRecent), uint64(h.fromLong), uint64(h.Store.Shards), uint64(h.Store.Away),
		h.Store.Local, h.Store.Keys, h.Store.Evicted,
	} {
		dst = binary.AppendUvarint(dst, n)
	}
	dst = appendLatency(dst, h.Store.Took)
	dst = appendLatency(dst, h.Took)
	dst = binary.AppendUvarint(dst, uint64(len(h.events)))
	for _, e := range h.events {
		dst = binary.AppendVarint(dst, e.At.UnixNano())
		dst = appendText(dst, e.Kind)
		dst = appendText(dst, e.Text)
	}
	return dst
}

// appendSeries appends the counts of a rule, if it has any.
func appendSeries(dst []byte, name string, s *series, h *head) []byte {
	start := len(dst)
	dst = appendText(dst, name)
	dst, some := appendSteps(dst, &s.recent, h.fromRecent)
	dst, more := appendSteps(dst, &s.days, h.fromLong)
	if !some && !more {
		return dst[:start]
	}
	return dst
}

// appendSteps appends the steps from one on, without those before the first count.
func appendSteps(dst []byte, s *steps, from int64) (out []byte, some bool) {
	from = max(from, s.last-int64(len(s.cells))+1)
	for from <= s.last && *s.cell(from) == [columns]uint32{} {
		from++
	}
	if from > s.last {
		return append(dst, 0), false
	}
	dst = binary.AppendUvarint(dst, uint64(s.last-from+1))
	dst = binary.AppendUvarint(dst, uint64(from))
	for c := range columns {
		for n := from; n <= s.last; n++ {
			v := s.cell(n)[c]
			dst = binary.AppendUvarint(dst, uint64(v))
			if v != 0 {
				continue
			}
			zeros := uint64(0)
			for n < s.last && s.cell(n + 1)[c] == 0 {
				zeros++
				n++
			}
			dst = binary.AppendUvarint(dst, zeros)
		}
	}
	return dst, true
}

func (d *decoder) latency() (l Latency) {
	l.Count = d.uvarint(maxValue)
	l.P50, l.P99 = time.Duration(d.uvarint(maxValue)), time.Duration(d.uvarint(maxValue))
	return l
}

// postHead reads what appendHead has written.
func (d *decoder) postHead() (h head) {
	if len(d.rest) < 2 || d.rest[0] != postForm || d.rest[1] != postVersion {
		d.fail()
		return h
	}
	d.rest = d.rest[2:]
	h.id = d.text(2 * maxName)
	for _, s := range []*string{&h.Name, &h.Version, &h.Policy, &h.Store.Kind} {
		*s = d.text(maxName)
	}
	h.Started, h.at = d.time(), d.time()
	h.fromRecent, h.fromLong = int64(d.uvarint(maxValue)), int64(d.uvarint(maxValue))
	h.Store.Shards, h.Store.Away = int(d.uvarint(1<<16)), int(d.uvarint(1<<16))
	h.Store.Local, h.Store.Keys, h.Store.Evicted = d.uvarint(1<<62), d.uvarint(1<<62), d.uvarint(1<<62)
	h.Store.Took, h.Took = d.latency(), d.latency()
	for range d.uvarint(maxEvents) {
		e := Event{At: d.time(), Kind: d.text(maxEventKind), Text: d.text(maxEventText), Instance: h.Name}
		if d.failed {
			break
		}
		h.events = append(h.events, e)
	}
	return h
}

// readPost reads a post. It adds the counts before certain steps to the series that rule returns for the name
// of a rule, or for "" for all requests. If that is nil, it skips the counts.
func readPost(post []byte, recentBelow, longBelow int64, rule func(name string) *series) (head, error) {
	d := decoder{rest: post}
	h := d.postHead()
	for range MaxRules + 3 {
		if len(d.rest) == 0 {
			break
		}
		name := d.text(maxRuleName)
		s := rule(name)
		if s == nil {
			s = new(series)
		}
		d.steps(RecentSteps, recentBelow, &s.recent)
		d.steps(LongSteps, longBelow, &s.days)
	}
	if d.failed || len(d.rest) > 0 {
		return head{}, errUnreadable
	}
	return h, nil
}

const maxRuleName = 1 << 10

func (d *decoder) steps(most int, below int64, to *steps) {
	n := int64(d.uvarint(uint64(most)))
	if n == 0 {
		return
	}
	from := int64(d.uvarint(maxValue))
	for c := range columns {
		for i := int64(0); i < n; i++ {
			if v := d.uvarint(maxValue); v != 0 {
				if from+i < below {
					to.add(from+i, c, v)
				}
				continue
			}
			i += int64(d.uvarint(uint64(n - 1 - i)))
		}
		if d.failed {
			return
		}
	}
}

// clip cuts a text to a number of bytes, without dividing a character.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most]
}
