package control

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// overrideFilter selects overrides.
type overrideFilter struct {
	Query
	veil *veil
	text string // the text of the query
	low  string // text in lower case
	now  time.Time
}

// The states by which overrides can be filtered.
const (
	stateToday  = "today"
	stateEnded  = "ended"
	stateBlocks = "blocks"
)

func (c *Control) overrideFilter(who Caller, q Query) (*overrideFilter, error) {
	f := &overrideFilter{Query: q, veil: c.veilFor(who), text: strings.TrimSpace(q.Text), now: time.Now()}
	f.low = strings.ToLower(f.text)
	if f.State != "" && f.State != stateToday && f.State != stateEnded && f.State != stateBlocks {
		return nil, BadParameter("state", "write today, ended or blocks")
	}
	return f, nil
}

// wants reports whether the filter selects an override.
func (f *overrideFilter) wants(o *policy.Override) bool {
	switch f.State {
	case stateBlocks:
		if !o.Block {
			return false
		}
	case stateToday, stateEnded:
		end := endOfOverride(o)
		if ended := !end.After(f.now); ended != (f.State == stateEnded) || !ended && end.After(f.now.Add(24*time.Hour)) {
			return false
		}
	}
	return f.Query.wants(o) && f.contains(o)
}

// contains reports whether a field of an override contains the text. If the caller must not see the key, the text
// must equal a whole value of the key; otherwise values could be guessed letter by letter.
func (f *overrideFilter) contains(o *policy.Override) bool {
	if f.text == "" {
		return true
	}
	hidden := f.veil != nil && f.veil.hides(o.Rule)
	for _, value := range o.Key {
		if value == f.text || !hidden && f.foundIn(value) {
			return true
		}
	}
	switch {
	case f.foundIn(o.Rule), f.foundIn(o.Reason), f.foundIn(o.By), f.foundIn(o.Source), o.Block && f.foundIn("blocked"), o.Exempt && f.foundIn("not limited"):
		return true
	}
	return slices.ContainsFunc(o.LimitTexts(), f.foundIn)
}

func (f *overrideFilter) foundIn(text string) bool {
	return strings.Contains(strings.ToLower(text), f.low)
}

// forGood is the end of an override that never expires.
var forGood = time.Unix(math.MaxInt32<<8, 0)

func endOfOverride(o *policy.Override) time.Time {
	if o.Until == "" {
		return forGood
	}
	end, err := policy.ParseUntil(o.Until)
	if err != nil {
		return forGood // cannot happen: an override in force is valid
	}
	return end
}

// endPosition orders overrides by end. Overrides that will end come first, the earliest first; then those without an
// end; and last those that have ended, the latest first.
type endPosition struct {
	ended bool
	end   int64 // seconds; negated if it is past
	id    string
}

func positionOf(i *item, now time.Time) endPosition {
	end := endOfOverride(i.Document.(*policy.Override))
	if !end.After(now) {
		return endPosition{true, -end.Unix(), i.ID}
	}
	return endPosition{false, end.Unix(), i.ID}
}

func (p endPosition) compare(other endPosition) int {
	if p.ended != other.ended {
		if p.ended {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(p.end, other.end), cmp.Compare(p.id, other.id))
}

func (p endPosition) String() string { return fmt.Sprintf("%t %d %s", p.ended, p.end, p.id) }

func parsePosition(text string) (p endPosition, err error) {
	_, err = fmt.Sscanf(text, "%t %d %s", &p.ended, &p.end, &p.id)
	return p, err
}

// overridesByEnd returns a page of overrides, ordered by end, with the total number of overrides.
func (c *Control) overridesByEnd(all []item, f *overrideFilter, after string, n int) (*Page, error) {
	type positioned struct {
		endPosition
		item *item
	}
	var found []positioned
	for i := range all {
		if f.wants(all[i].Document.(*policy.Override)) {
			found = append(found, positioned{positionOf(&all[i], f.now), &all[i]})
		}
	}
	slices.SortFunc(found, func(x, y positioned) int { return x.compare(y.endPosition) })
	total, first := len(found), 0
	if after != "" {
		begin, err := parsePosition(after)
		if err != nil {
			return nil, badCursor()
		}
		first = sort.Search(total, func(i int) bool { return found[i].compare(begin) > 0 })
	}
	out := &Page{Items: []Item{}, Total: &total}
	page := found[first:min(first+n, total)]
	for _, p := range page {
		out.Items = append(out.Items, c.listed(p.item, f.veil))
	}
	if first+n < total {
		out.Next = cursorBehind(page[n-1].endPosition.String())
	}
	return out, nil
}
