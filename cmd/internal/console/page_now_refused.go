package console

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// whoRow is a subject that was refused, or would have been.
type whoRow struct {
	*telemetry.Subject
	Rule    string
	Name    string  // as it may be shown
	Rate    float64 // requests a second while it asked; negative if not known
	Refused float64 // share of them; likewise
	Times   float64 // the limit; 0 if not known
	Would   bool
	Now     *looked // or nil
	Link    string
}

// who finds those refused most by the chosen rule, or by all, and looks at what holds for them.
func (s *server) who(c *call, f *firstShown, v *telemetry.View, chosen *telemetry.Rule, rules map[string]*policy.Rule) {
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
			row.Name = s.shownSubject(row.Key, row.Shown)
			all = append(all, row)
		}
		if len(list) > 0 {
			f.WhoError = max(f.WhoError, r.Refusals[w].Error)
		}
	}
	slices.SortStableFunc(all, func(a, b whoRow) int { return cmp.Compare(b.Count, a.Count) })
	all = all[:min(len(all), maxLooked)]
	for i := range all {
		row := &all[i]
		row.Now = s.look(c.Context(), row.Key)
		if row.Limit.Count == 0 && row.Now != nil && row.Now.Limit.Count > 0 { // an older instance did not say it
			row.Times = timesOf(v.Rule(row.Rule), w, row.Subject, row.Now.Limit)
		}
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
		Subject: t, Rule: r.Name, Name: t.Shown, Rate: -1, Refused: -1,
		Link: "/subjects/" + t.ID, Would: written != nil && written.Shadow,
	}
	if asked := askedBy(r, w, t.Key); asked != nil {
		n := max(asked.Count, t.Count)
		row.Rate, row.Refused = perSecond(n, active(asked, w)), min(1, shareOf(t.Count, n))
	}
	if written != nil {
		if l, found := limitOf(written); found || t.Limit.Count > 0 && written.InFlight == 0 {
			row.Times = timesOf(r, w, t, l)
		}
	}
	return row
}

// Words of how many times the limit.
func (r whoRow) TimesWords() string {
	if r.Times <= 0 {
		return "–"
	}
	return timesWords(r.Times) + "×"
}

// harmedRow are the customers of one tier, or those with an override, that were refused.
type harmedRow struct {
	Name     string
	Kind     string // override, tier or rule
	Subjects uint64
	Asked    uint64 // customers; 0: unknown
	Once     int    // refused once, of those that are listed
	Worst    int    // minutes of the last hour
	Who      whoRow
	size     float64 // of the limit
}

// Lost is how much of what the one asked for that was refused the longest was refused, in words; empty: unknown.
func (r harmedRow) Lost() string {
	if r.Who.Refused < 0 {
		return ""
	}
	return percent(r.Who.Refused) + " of its requests, "
}

// harmed groups those that were refused, whoever has more than others first: by the tiers of their requests,
// whatever rules refused these, and beside that those that have an override. Subjects that are blocked are not
// hurt.
func (s *server) harmed(c *call, v *telemetry.View, w telemetry.Window, all []whoRow, rules map[string]*policy.Rule) (rows []harmedRow) {
	for i := range v.Tiers {
		if row, some := s.harmedTier(c, &v.Tiers[i], w); some {
			for _, written := range rules {
				row.size = max(row.size, tierSize(written, row.Name))
			}
			rows = append(rows, row)
		}
	}
	none, override := harmedRow{Name: "No tier", Kind: "rule"}, harmedRow{Name: "With an override", Kind: "override"}
	for _, one := range all {
		switch {
		case one.Now == nil || one.Would || one.Now.Blocked:
		case one.Now.From == "override":
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

// harmedTier returns the customers of a tier that were refused, if there are any.
func (s *server) harmedTier(c *call, tier *telemetry.Tier, w telemetry.Window) (row harmedRow, some bool) {
	row = harmedRow{Name: tier.Name, Kind: "tier"}
	if tier.Name == "" {
		row.Name, row.Kind = "No tier", "rule"
	}
	blocked := uint64(0)
	list := tier.Refusals[w].Items
	for i := range list {
		one := whoRow{Subject: &list[i], Name: s.shownSubject(list[i].Key, list[i].Shown), Refused: -1}
		if one.ID != "" {
			one.Link = "/subjects/" + one.ID
		}
		if one.Key != "" && i < maxLooked {
			one.Now = s.look(c.Context(), one.Key)
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

// findCustomer finds a customer in another list, if that knows enough of it; those that no rule counts alone have
// no key.
func findCustomer(list []telemetry.Subject, one *telemetry.Subject) *telemetry.Subject {
	i := slices.IndexFunc(list, func(s telemetry.Subject) bool { return s.Sent == one.Sent })
	if i < 0 || !nearEnough(&list[i]) {
		return nil
	}
	return &list[i]
}

// tierSize is how large the limits of a tier are in a rule, that of the rule itself if it does not name the tier.
func tierSize(r *policy.Rule, tier string) (size float64) {
	texts := r.Tiers[tier]
	if len(texts) == 0 {
		return 0
	}
	for _, text := range texts {
		if l, err := sluice.ParseLimit(text); err == nil {
			size = max(size, ratePer(l))
		}
	}
	return size
}

func (r *harmedRow) add(one whoRow) {
	r.Subjects++
	if one.Count == 1 {
		r.Once++
	}
	if one.Minutes > r.Worst || r.Who.Subject == nil || one.Minutes == r.Worst && one.Count > r.Who.Count {
		r.Worst, r.Who = one.Minutes, one
	}
}

// change is something that may be why the numbers changed.
type change struct {
	At   time.Time
	Kind string
	Who  string
	Text string
	Near bool // it came just before what the headline tells of
	Link string

	first time.Time // of an event that came several times, so many
	times int
}

// began is when the change began.
func (c *change) began() time.Time {
	if c.first.IsZero() {
		return c.At
	}
	return c.first
}

// flapFor is how far apart events of a circuit may be that are one line.
const flapFor = 15 * time.Minute

// flapped makes one line of what a circuit does again and again, the latest first: it would push out what people
// did.
func flapped(all []change) (out []change) {
	type of struct{ kind, who string }
	last := map[of]int{} // its place in out
	for _, c := range all {
		if c.Kind != "circuit" && c.Kind != "fleet" {
			out = append(out, c)
			continue
		}
		i, known := last[of{c.Kind, c.Who}]
		if !known || out[i].first.Sub(c.At) > flapFor {
			c.first, c.times = c.At, 1
			last[of{c.Kind, c.Who}] = len(out)
			out = append(out, c)
			continue
		}
		out[i].first = c.At
		out[i].times++
	}
	for i := range out {
		if c := &out[i]; c.times > 2 {
			c.Text += fmt.Sprintf(" (it changed %d times in %s)", c.times, lengthWords(c.At.Sub(c.first).Round(time.Second)))
		}
	}
	return out
}

// loadFor is how long a fleet may take to load one policy.
const loadFor = time.Minute

// loadedByAll makes one line of the instances that load the same policy, the latest first.
func loadedByAll(all []change) (out []change) {
	last := map[string]int{}     // a text, and its index in out
	others := map[int][]string{} // further instances, by index
	for _, c := range all {
		i, known := last[c.Text]
		switch {
		case c.Kind != "reload":
		case !known || out[i].At.Sub(c.At) > loadFor || out[i].Who == c.Who || slices.Contains(others[i], c.Who):
			last[c.Text] = len(out)
		default:
			others[i] = append(others[i], c.Who)
			out[i].first = c.At
			continue
		}
		out = append(out, c)
	}
	for i, who := range others {
		out[i].Who += " and " + several(int64(len(who)), "other")
	}
	return out
}

// changesOf are the latest, of those who operate and of what happened by itself.
func changesOf(v *telemetry.View, audits []source.Entry, since time.Time) (all []change) {
	for i := range audits {
		a := &audits[i]
		all = append(all, change{At: a.At, Kind: a.Kind, Who: a.Actor, Text: auditWords(a), Link: "/audit"})
	}
	for _, e := range v.Events {
		all = append(all, change{At: e.At, Kind: e.Kind, Who: e.Instance, Text: e.Text})
	}
	slices.SortStableFunc(all, func(a, b change) int { return b.At.Compare(a.At) })
	all = loadedByAll(flapped(all))
	if !since.IsZero() {
		// Steps are ten seconds long: what came that much later may have come before.
		i := slices.IndexFunc(all, func(c change) bool { return !c.began().After(since.Add(telemetry.Step)) })
		if i >= 0 && since.Sub(all[i].began()) < 30*time.Minute {
			all[i].Near = true
			if i >= maxChanges {
				all[maxChanges-1] = all[i]
			}
		}
	}
	return all[:min(len(all), maxChanges)]
}

// health is how Sluice itself is doing.
type health struct {
	Kind      string // good, warn or bad
	Words     []string
	Instances []instanceRow
	More      int // instances that are not shown
}

type instanceRow struct {
	*telemetry.Instance
	Local float64 // decisions a second without the store
}

const maxInstances = 12

func healthOf(v *telemetry.View) (h health) {
	var stale, away, differ, evicted int
	local := 0.0
	for i := range v.Instances {
		one := &v.Instances[i]
		row := instanceRow{one, float64(one.Store.Local) / 60}
		h.Instances = append(h.Instances, row)
		local += row.Local
		for of, yes := range map[*int]bool{&stale: one.Stale, &away: one.Store.Away > 0, &differ: one.Differs && !one.Stale, &evicted: one.Store.Evicted > 0} {
			if yes {
				*of++
			}
		}
	}
	say := func(n int, kind, one, many string) {
		if n > 0 {
			h.Words = append(h.Words, plural(n, one, many))
			if h.Kind != "bad" {
				h.Kind = kind
			}
		}
	}
	say(stale, "bad", "instance does not answer", "instances do not answer")
	say(away, "bad", "instance has an open circuit to the store", "instances have an open circuit to the store")
	say(differ, "bad", "instance has another policy", "instances have another policy")
	if local > 0 {
		h.Words = append(h.Words, rate(local)+" decisions a second are made without the store")
		h.Kind = cmp.Or(h.Kind, "warn")
	}
	say(evicted, "warn", "instance has forgotten keys that were being limited", "instances have forgotten keys that were being limited")
	if h.Kind == "" {
		h.Kind, h.Words = "good", []string{"Nothing is wrong with it"}
	}
	slices.SortStableFunc(h.Instances, func(a, b instanceRow) int { return cmp.Compare(b.trouble(), a.trouble()) })
	if n := len(h.Instances); n > maxInstances {
		h.Instances, h.More = h.Instances[:maxInstances], n-maxInstances
	}
	return h
}

// trouble orders instances: those first that somebody has to look at.
func (r instanceRow) trouble() (n int) {
	for i, yes := range []bool{r.Self, r.Store.Evicted > 0, r.Local > 0, r.Differs && !r.Stale, r.Store.Away > 0, r.Stale} {
		if yes {
			n |= 1 << i
		}
	}
	return n
}
