package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// whoRow is a subject with requests that were denied, or would have been.
type whoRow struct {
	*telemetry.Subject
	Rule    string
	Name    string  // the key for display
	Rate    float64 // requests per second while the subject was active; negative: unknown
	Refused float64 // the fraction of requests that were denied; negative: unknown
	Times   float64 // the number of requests divided by the limit; 0: unknown
	Would   bool
	Now     *looked // nil: its limits were not looked up
	Link    string
}

// refusedMost finds the subjects with the most denials by the chosen rule, or by all rules, and looks up their
// limits.
func (s *server) refusedMost(c *call, f *firstShown, v *telemetry.View, chosen *telemetry.Rule, rules map[string]*policy.Rule) {
	w := f.Ask.Window
	var all []whoRow
	for i := range v.Rules {
		r := &v.Rules[i]
		if chosen != nil && r != chosen {
			continue
		}
		list := r.Refusals[w].Items
		for j := range list[:min(len(list), maxLooked)] {
			row := rowOf(r, &list[j], w, rules[r.Name])
			row.Name = c.shownSubject(row.Subject)
			all = append(all, row)
		}
		if len(list) > 0 {
			f.WhoError = max(f.WhoError, r.Refusals[w].Error)
		}
	}
	slices.SortStableFunc(all, func(a, b whoRow) int { return cmp.Compare(b.Count, a.Count) })
	all = all[:min(len(all), maxLooked)]
	for i := range all {
		all[i].Now = s.look(c, all[i].ID)
	}
	f.Harmed = s.harmed(c, v, w, all, rules)
	for _, row := range all {
		if row.Now != nil && row.Now.FullAt.After(v.At) && !row.Now.Blocked && !row.Would && len(f.Ending) < 5 {
			f.Ending = append(f.Ending, row)
		}
	}
	if f.Ask.Ranged() {
		all = slices.DeleteFunc(all, func(r whoRow) bool { return r.Last.Before(f.Ask.From) || r.First.After(f.Ask.To) })
	}
	f.Who = all[:min(len(all), maxWho)]
}

func rowOf(r *telemetry.Rule, t *telemetry.Subject, w telemetry.Window, written *policy.Rule) whoRow {
	row := whoRow{
		Subject: t, Rule: r.Name, Rate: -1, Refused: -1,
		Link: subjectPage(t.ID), Would: written != nil && written.Shadow,
	}
	if asked := askedBy(r, w, t.Key); asked != nil {
		n := max(asked.Count, t.Count)
		row.Rate, row.Refused = perSecond(n, active(asked, w)), min(1, shareOf(t.Count, n))
	}
	if written != nil {
		if l, found := limitOf(written); found || t.Limit.Count > 0 && written.InFlight == (policy.InFlight{}) {
			row.Times = timesOf(r, w, t, l)
		}
	}
	return row
}

// TimesWords returns Times in words.
func (r whoRow) TimesWords() string {
	if r.Times <= 0 {
		return "–"
	}
	return timesWords(r.Times) + "×"
}

// harmedRow has the denied customers of one tier, or those with an override.
type harmedRow struct {
	Name     string
	Kind     string // override, tier or rule
	Subjects uint64
	Asked    uint64 // the number of customers that sent requests; 0: unknown
	Once     int    // the number of listed customers with a single denial
	Worst    int    // the number of minutes in the last hour in which the customer in Who was denied
	Who      whoRow
	size     float64 // the size of the limit
}

// Lost describes the fraction of the requests of the customer in Who that were denied. It returns "" if the fraction
// is unknown.
func (r harmedRow) Lost() string {
	if r.Who.Refused < 0 {
		return ""
	}
	return percent(r.Who.Refused) + " of its requests, "
}

// harmed groups the denied subjects of all rules by tier, the tiers with larger limits first. Subjects with an
// override form a group of their own. Blocked subjects are omitted.
func (s *server) harmed(c *call, v *telemetry.View, w telemetry.Window, all []whoRow, rules map[string]*policy.Rule) (rows []harmedRow) {
	for i := range v.Tiers {
		if row, some := s.harmedTier(c, &v.Tiers[i], w); some {
			for _, written := range rules {
				for _, text := range written.Tiers[row.Name] {
					if l, err := sluice.ParseLimit(text); err == nil && l.Money == 0 {
						row.size = max(row.size, ratePer(l))
					}
				}
			}
			rows = append(rows, row)
		}
	}
	none, override := harmedRow{Name: "No tier", Kind: "rule"}, harmedRow{Name: "With an override", Kind: "override"}
	for _, one := range all {
		switch {
		case one.Now == nil || one.Would || one.Now.Blocked:
		case one.Now.Fullest.From == "override":
			override.add(one)
		case len(v.Tiers) == 0:
			none.add(one)
		}
	}
	for _, row := range []harmedRow{none, override} {
		if row.Subjects > 0 {
			rows = append(rows, row)
		}
	}
	order := map[string]int{"tier": 0, "override": 1, "rule": 2}
	slices.SortStableFunc(rows, func(a, b harmedRow) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), cmp.Compare(b.size, a.size))
	})
	return rows
}

// harmedTier returns the row of a tier's denied customers, and false if no customer was denied.
func (s *server) harmedTier(c *call, tier *telemetry.Tier, w telemetry.Window) (row harmedRow, some bool) {
	row = harmedRow{Name: tier.Name, Kind: "tier"}
	if tier.Name == "" {
		row.Name, row.Kind = "No tier", "rule"
	}
	blocked := uint64(0)
	list := tier.Refusals[w].Items
	for i := range list {
		one := whoRow{Subject: &list[i], Name: c.shownSubject(&list[i]), Refused: -1}
		if one.ID != "" {
			one.Link = subjectPage(one.ID)
		}
		if one.ID != "" && i < maxLooked {
			one.Now = s.look(c, one.ID)
		}
		if one.Now != nil && one.Now.Blocked {
			blocked++
			continue
		}
		if asked := findCustomer(tier.Traffic[w].Items, one.Subject); asked != nil {
			one.Refused = min(1, shareOf(one.Count, max(asked.Count, one.Count)))
		}
		row.add(one)
	}
	some = row.Subjects > 0
	row.Subjects = max(row.Subjects, tier.Refused[w]-min(blocked, tier.Refused[w]))
	if row.Asked = tier.Asked[w]; row.Asked > 0 {
		row.Asked = max(row.Asked, row.Subjects)
	}
	return row, some
}

// findCustomer returns the entry of a customer in another list, or nil if it is missing or its count is too
// inexact. It compares Sent, because a customer that no rule counts separately has no key.
func findCustomer(list []telemetry.Subject, one *telemetry.Subject) *telemetry.Subject {
	i := slices.IndexFunc(list, func(s telemetry.Subject) bool { return s.Sent == one.Sent })
	if i < 0 || !nearEnough(&list[i]) {
		return nil
	}
	return &list[i]
}

func (r *harmedRow) add(one whoRow) {
	r.Subjects++
	if one.Count == 1 {
		r.Once++
	}
	if r.Who.Subject == nil || cmp.Or(cmp.Compare(one.Minutes, r.Worst), cmp.Compare(one.Count, r.Who.Count)) > 0 {
		r.Worst, r.Who = one.Minutes, one
	}
}

// change is an event that may be the reason why the numbers changed.
type change struct {
	At   time.Time
	Kind string
	Who  string
	Text string
	Near bool // the event happened just before the time in the headline
	Link string

	first time.Time // the earliest time of a repeated event
	times int
	by    []string // the instances, the latest first
}

// oneLine is the maximum time between events that share a line, by kind. Sharing keeps the repeated events of a
// circuit from pushing the changes of operators off the list. The instances of a fleet load a policy within a
// minute of each other.
var oneLine = map[string]time.Duration{"circuit": 15 * time.Minute, "fleet": 15 * time.Minute, "reload": time.Minute}

// joinedEvents merges the repeated events of a circuit into one line, and the events of instances that load the
// same policy into another. The latest event comes first.
func joinedEvents(all []change) (out []change) {
	last := map[[2]string]int{} // the index in out of the last line of an event
	for _, c := range all {
		what := [2]string{c.Kind, c.Who}
		if c.Kind == "reload" {
			what[1] = c.Text
		}
		near, joins := oneLine[c.Kind]
		i, known := last[what]
		if !joins || !known || out[i].first.Sub(c.At) > near || c.Kind == "reload" && slices.Contains(out[i].by, c.Who) {
			last[what] = len(out)
			c.first, c.times, c.by = c.At, 1, []string{c.Who}
			out = append(out, c)
			continue
		}
		out[i].first, out[i].by = c.At, append(out[i].by, c.Who)
		out[i].times++
	}
	for i := range out {
		switch c := &out[i]; {
		case c.Kind == "reload" && c.times > 1:
			c.Who += " and " + words.Counted(c.times-1, "other")
		case c.times > 2:
			c.Text += fmt.Sprintf(" (it changed %d times in %s)", c.times, words.Span(c.At.Sub(c.first)))
		}
	}
	return out
}

// changesOf returns the latest changes, both by operators and automatic ones.
func changesOf(v *telemetry.View, audits []source.Entry, since time.Time) (all []change) {
	for i := range audits {
		a := &audits[i]
		all = append(all, change{At: a.At, Kind: a.Kind, Who: a.Actor, Text: auditWords(a), Link: "/audit"})
	}
	for _, e := range v.Events {
		all = append(all, change{At: e.At, Kind: e.Kind, Who: e.Instance, Text: e.Text})
	}
	slices.SortStableFunc(all, func(a, b change) int { return b.At.Compare(a.At) })
	all = joinedEvents(all)
	if !since.IsZero() {
		// since is rounded to steps of ten seconds, so an event up to a step later may really be earlier.
		i := slices.IndexFunc(all, func(c change) bool { return !c.first.After(since.Add(telemetry.Step)) })
		if i >= 0 && since.Sub(all[i].first) < 30*time.Minute {
			all[i].Near = true
			if i >= maxChanges {
				all[maxChanges-1] = all[i]
			}
		}
	}
	return all[:min(len(all), maxChanges)]
}

// health is the state of Sluice itself.
type health struct {
	Kind      string // "good", "warn" or "bad"
	Words     []string
	Instances []instanceRow
	More      int // instances that are not shown
}

type instanceRow struct {
	*telemetry.Instance
	Local float64 // decisions per second that are made without the store
}

const maxInstances = 12

func healthOf(v *telemetry.View) (h health) {
	var stale, unavailable, differ, evicted int
	local := 0.0
	for i := range v.Instances {
		one := &v.Instances[i]
		row := instanceRow{one, float64(one.Store.Local) / 60}
		h.Instances = append(h.Instances, row)
		local += row.Local
		stale += btoi(one.Stale)
		unavailable += btoi(one.Store.Unavailable > 0)
		differ += btoi(one.Differs && !one.Stale)
		evicted += btoi(one.Store.Evicted > 0)
	}
	say := func(n int, kind, one, many string) {
		if n > 0 {
			h.Words = append(h.Words, plural(n, one, many))
			if h.Kind != "bad" {
				h.Kind = kind
			}
		}
	}
	say(stale, "bad", "instance does not respond", "instances do not respond")
	say(unavailable, "bad", "instance has an open circuit to the store", "instances have an open circuit to the store")
	say(differ, "bad", "instance has another policy", "instances have another policy")
	if local > 0 {
		h.Words = append(h.Words, rate(local)+" decisions a second are made without the store")
		h.Kind = cmp.Or(h.Kind, "warn")
	}
	say(evicted, "warn", "instance has forgotten keys that were being limited", "instances have forgotten keys that were being limited")
	if h.Kind == "" {
		h.Kind, h.Words = "good", []string{"No problems"}
	}
	slices.SortStableFunc(h.Instances, func(a, b instanceRow) int { return cmp.Compare(b.trouble(), a.trouble()) })
	if n := len(h.Instances); n > maxInstances {
		h.Instances, h.More = h.Instances[:maxInstances], n-maxInstances
	}
	return h
}

// trouble returns a number that is larger the worse an instance's problems are. Instances with larger numbers are
// listed first.
func (r instanceRow) trouble() (n int) {
	for i, yes := range []bool{r.Self, r.Store.Evicted > 0, r.Local > 0, r.Differs && !r.Stale, r.Store.Unavailable > 0, r.Stale} {
		n |= btoi(yes) << i
	}
	return n
}
