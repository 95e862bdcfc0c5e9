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
	text string // as the caller wrote it
	low  string // the same in lower case
	now  time.Time
}

// States that overrides are filtered by.
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

// contains reports whether an override has the text in one of its fields. A caller that must not see a key has to give
// a whole value, so that no value can be guessed letter by letter.
func (f *overrideFilter) contains(o *policy.Override) bool {
	if f.text == "" {
		return true
	}
	hidden := f.veil != nil && f.veil.hides(o.Rule)
	for _, value := range o.Key {
		if value == f.text || !hidden && f.in(value) {
			return true
		}
	}
	switch {
	case f.in(o.Rule), f.in(o.Reason), f.in(o.By), f.in(o.Source), o.Block && f.in("blocked"), o.Exempt && f.in("not limited"):
		return true
	}
	return slices.ContainsFunc(o.LimitTexts(), f.in)
}

func (f *overrideFilter) in(text string) bool { return strings.Contains(strings.ToLower(text), f.low) }

// forGood is the end of an override that never expires.
var forGood = time.Unix(math.MaxInt32<<8, 0)

func endOfOverride(o *policy.Override) time.Time {
	if o.Until == "" {
		return forGood
	}
	end, err := policy.ParseUntil(o.Until)
	if err != nil {
		return forGood // not reached: an override in force can be parsed
	}
	return end
}

// endPlace orders overrides by their ends: first those that will end, the earliest first, then those without an
// end, and last those that have ended, the latest first.
type endPlace struct {
	ended bool
	end   int64 // seconds; negative if it has ended
	id    string
}

func placeOf(i *item, now time.Time) endPlace {
	end := endOfOverride(i.Document.(*policy.Override))
	if !end.After(now) {
		return endPlace{true, -end.Unix(), i.ID}
	}
	return endPlace{false, end.Unix(), i.ID}
}

func (p endPlace) compare(other endPlace) int {
	if p.ended != other.ended {
		if p.ended {
			return 1
		}
		return -1
	}
	return cmp.Or(cmp.Compare(p.end, other.end), cmp.Compare(p.id, other.id))
}

func (p endPlace) String() string { return fmt.Sprintf("%t %d %s", p.ended, p.end, p.id) }

func parsePlace(text string) (p endPlace, err error) {
	_, err = fmt.Sscanf(text, "%t %d %s", &p.ended, &p.end, &p.id)
	return p, err
}

// overridesByEnd returns a page of overrides in the order of their ends, and how many there are.
func (c *Control) overridesByEnd(all []item, f *overrideFilter, after string, n int) (*Page, error) {
	type placed struct {
		endPlace
		item *item
	}
	var found []placed
	for i := range all {
		if f.wants(all[i].Document.(*policy.Override)) {
			found = append(found, placed{placeOf(&all[i], f.now), &all[i]})
		}
	}
	slices.SortFunc(found, func(x, y placed) int { return x.compare(y.endPlace) })
	total, first := len(found), 0
	if after != "" {
		begin, err := parsePlace(after)
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
		out.Next = cursorBehind(page[n-1].endPlace.String())
	}
	return out, nil
}
