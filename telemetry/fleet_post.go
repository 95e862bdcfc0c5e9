package telemetry

import (
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// An instance posts its counts in two parts with the same format: the counts of the last minutes every few seconds,
// and all counts once a minute. Readers need both parts.
//
// A post starts with two bytes for its format and version. Then comes the head as JSON, and then the counts of all
// requests, of each upstream and of each rule, in two lists of steps. Numbers are varints, and a text follows its
// length. Counts are written column by column, since most columns have only zeros. A zero is followed by the number
// of zeros after it.

const (
	postForm    = 'S'
	postVersion = 6

	maxName  = 200       // bytes of a name
	maxHead  = 256 << 10 // bytes of a head
	maxPost  = 512 << 10 // bytes of a post: if not all rules fit, those at the end of the document are left out
	maxValue = 1 << 40   // the largest number of a step, and the largest number in the state of loads
)

// head has the contents of a post other than counts.
type head struct {
	Instance
	ID                   string // identifies this run of the instance
	At                   time.Time
	FromRecent, FromLong int64 // the numbers of the first steps in the post
	Events               []Event
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// appendHead starts a post.
func appendHead(dst []byte, h *head) []byte {
	text, _ := json.Marshal(h) // never fails for these types
	return appendText(append(dst, postForm, postVersion), string(text))
}

// appendSeries appends the counts of a rule, if it has any.
func appendSeries(dst []byte, name string, s *series, h *head) []byte {
	return appendTimed(dst, name, &s.timed, h)
}

func appendTimed[C counted](dst []byte, name string, s *timed[C], h *head) []byte {
	start := len(dst)
	dst = appendText(dst, name)
	dst, some := appendSteps(dst, &s.recent, h.FromRecent)
	dst, more := appendSteps(dst, &s.days, h.FromLong)
	if !some && !more {
		return dst[:start]
	}
	return dst
}

// appendSteps appends all steps from the given step number on, without those before the first count.
func appendSteps[C counted](dst []byte, s *steps[C], from int64) (out []byte, some bool) {
	from = sinceUsed(&s.ring, from)
	value := func(n int64, c int) uint64 { return uint64((*s.cell(n))[c]) }
	return appendCells(dst, len(*new(C)), from, s.last, value), from <= s.last
}

// appendCells appends the number of steps, the first step, and the values of the steps by column. Without a step it
// appends 0.
func appendCells(dst []byte, columns int, from, last int64, value func(n int64, column int) uint64) []byte {
	if from > last {
		return append(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(last-from+1))
	dst = binary.AppendUvarint(dst, uint64(from))
	for c := range columns {
		for n := from; n <= last; n++ {
			v := value(n, c)
			dst = binary.AppendUvarint(dst, v)
			if v != 0 {
				continue
			}
			zeros := uint64(0)
			for n < last && value(n+1, c) == 0 {
				zeros++
				n++
			}
			dst = binary.AppendUvarint(dst, zeros)
		}
	}
	return dst
}

// appendRules appends the entry of each rule, up to the largest size of a post.
func appendRules(post []byte, rules []*ruleCounters, entry func(dst []byte, c *ruleCounters) []byte) []byte {
	for _, c := range rules {
		before := len(post)
		if post = entry(post, c); len(post) > maxPost {
			return post[:before]
		}
	}
	return post
}

// postOf returns a post that consists of a version and an entry for each rule, or nil if no rule has an entry.
func postOf(version byte, rules []*ruleCounters, entry func(dst []byte, c *ruleCounters) []byte) []byte {
	post := appendRules([]byte{version}, rules, entry)
	if len(post) == 1 {
		return nil
	}
	return post
}

// readRules reads a post that postOf has made. After the name of each rule, it calls entry, which reads the entry of
// the rule. A nil post has no rules.
func readRules(post []byte, version byte, entry func(d *decoder, name string)) error {
	if post == nil {
		return nil
	}
	d := &decoder{rest: post}
	if len(post) > maxPost || d.byte() != version {
		return errUnreadable
	}
	for n := 0; len(d.rest) > 0 && n < MaxRules; n++ {
		entry(d, d.text(maxRuleName))
	}
	if d.failed || len(d.rest) > 0 {
		return errUnreadable
	}
	return nil
}

// postHead reads what appendHead has written.
func (d *decoder) postHead() (h head) {
	if len(d.rest) < 2 || d.rest[0] != postForm || d.rest[1] != postVersion {
		d.fail()
		return h
	}
	d.rest = d.rest[2:]
	if json.Unmarshal(d.bytes(d.uvarint(maxHead)), &h) != nil || len(h.Events) > maxEvents {
		d.fail()
		return head{}
	}
	h.Self = false
	for _, s := range []*string{&h.Name, &h.Version, &h.Policy, &h.Store.Kind} {
		*s = clip(*s, maxName)
	}
	h.clipUpstreams()
	for i := range h.Events {
		e := &h.Events[i]
		e.Kind, e.Text, e.Instance = clip(e.Kind, maxEventKind), clip(e.Text, maxEventText), h.Name
	}
	return h
}

// sums has functions that return the series to which the counts of a post are added. If such a function returns
// nil, the counts are skipped.
type sums struct {
	rule     func(name string) *series // the name "" stands for all requests
	upstream func(name string) *upstreamSeries
}

// skipped are the sums for a post that is only checked: they skip all counts.
var skipped = sums{func(string) *series { return nil }, func(string) *upstreamSeries { return nil }}

// readPost reads a post, and adds the counts of the steps below recentBelow and longBelow to the given sums.
func readPost(post []byte, recentBelow, longBelow int64, to sums) (head, error) {
	d := decoder{rest: post}
	h := d.postHead()
	for range MaxRules + 3 + MaxUpstreams + 1 {
		if len(d.rest) == 0 {
			break
		}
		name := d.text(maxRuleName)
		if upstream, is := strings.CutPrefix(name, upstreamPrefix); is {
			addTimed(&d, recentBelow, longBelow, to.upstream(upstream))
		} else if s := to.rule(name); s != nil {
			addTimed(&d, recentBelow, longBelow, &s.timed)
		} else {
			addTimed[[columns]uint32](&d, recentBelow, longBelow, nil)
		}
	}
	if d.failed || len(d.rest) > 0 {
		return head{}, errUnreadable
	}
	return h, nil
}

// addTimed reads the output of appendTimed after the name, and adds it to s, which may be nil.
func addTimed[C counted](d *decoder, recentBelow, longBelow int64, s *timed[C]) {
	if s == nil {
		s = new(timed[C])
	}
	addSteps(d, RecentSteps, recentBelow, &s.recent)
	addSteps(d, LongSteps, longBelow, &s.days)
}

const maxRuleName = 1 << 10

func addSteps[C counted](d *decoder, most int, below int64, to *steps[C]) {
	d.cells(len(*new(C)), most, func(n int64, c int, v uint64) {
		if n < below {
			to.add(n, c, v)
		}
	})
}

// cells reads the output of appendCells, with at most maxSteps steps, and calls the function add for each value
// that is not zero.
func (d *decoder) cells(columns, maxSteps int, add func(n int64, column int, v uint64)) {
	n := int64(d.uvarint(uint64(maxSteps)))
	if n == 0 {
		return
	}
	from := int64(d.uvarint(maxValue))
	for c := range columns {
		for i := int64(0); i < n; i++ {
			if v := d.uvarint(maxCount); v != 0 {
				add(from+i, c, v)
				continue
			}
			i += int64(d.uvarint(uint64(n - 1 - i)))
		}
		if d.failed {
			return
		}
	}
}

// clip cuts a text to at most limit bytes, without dividing a character.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
