package dashboard

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

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
		if row.Now != nil && row.Now.Limit.Count > 0 {
			row.Times = timesOf(v.Rule(row.Rule), w, row.Subject, row.Now.Limit)
		}
	}
	f.Harmed, f.Looked = harmedOf(all), len(all)
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
	if asked := find(r.Traffic[w].Items, t.Key); asked != nil {
		n := max(asked.Count, t.Count)
		row.Rate, row.Refused = perSecond(n, active(asked, w)), min(1, shareOf(t.Count, n))
	}
	if written != nil {
		if l, found := limitOf(written); found {
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

// harmedRow are those of one tier, or with an override, who were refused.
type harmedRow struct {
	Name     string
	Kind     string // override, tier or rule
	Subjects int
	Once     int // refused once
	Worst    int // minutes of the last hour
	Who      whoRow
	Refusals uint64
	size     float64 // of the limit
}

// harmedOf groups those that were refused, whoever has more than others first.
func harmedOf(all []whoRow) (rows []harmedRow) {
	for _, one := range all {
		if one.Now == nil || one.Would {
			continue
		}
		name, kind := "No tier", "rule"
		if tier, is := strings.CutPrefix(one.Now.From, "tier:"); is {
			name, kind = tier, "tier"
		} else if one.Now.From == "override" {
			name, kind = "With an override", "override"
		}
		i := slices.IndexFunc(rows, func(r harmedRow) bool { return r.Name == name && r.Kind == kind })
		if i < 0 {
			i = len(rows)
			rows = append(rows, harmedRow{Name: name, Kind: kind})
		}
		r := &rows[i]
		r.Subjects++
		r.Refusals += one.Count
		if one.Count == 1 {
			r.Once++
		}
		if one.Minutes >= r.Worst {
			r.Worst, r.Who = one.Minutes, one
		}
		if one.Now.Limit.Count > 0 {
			r.size = max(r.size, ratePer(one.Now.Limit))
		}
	}
	order := map[string]int{"tier": 0, "override": 1, "rule": 2}
	slices.SortStableFunc(rows, func(a, b harmedRow) int {
		return cmp.Or(cmp.Compare(order[a.Kind], order[b.Kind]), cmp.Compare(b.size, a.size))
	})
	return rows
}

// change is something that may be why the numbers changed.
type change struct {
	At   time.Time
	Kind string
	Who  string
	Text string
	Near bool // it came just before what the headline tells of
	Link string
}

// changesOf are the latest, of those who operate and of what happened by itself.
func changesOf(v *telemetry.View, audits []auditEntry, since time.Time) (all []change) {
	for _, a := range audits {
		all = append(all, change{At: a.At, Kind: a.Kind, Who: a.Actor, Text: a.words(), Link: "/audit"})
	}
	for _, e := range v.Events {
		all = append(all, change{At: e.At, Kind: e.Kind, Who: e.Instance, Text: e.Text})
	}
	slices.SortStableFunc(all, func(a, b change) int { return b.At.Compare(a.At) })
	if !since.IsZero() {
		// Steps are ten seconds long: what came that much later may have come before.
		i := slices.IndexFunc(all, func(c change) bool { return !c.At.After(since.Add(telemetry.Step)) })
		if i >= 0 && since.Sub(all[i].At) < 30*time.Minute {
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
	Differs bool    // another policy than the one that answers
	Local   float64 // decisions a second without the store
}

const maxInstances = 12

func healthOf(v *telemetry.View) (h health) {
	own := ""
	for i := range v.Instances {
		if v.Instances[i].Self {
			own = v.Instances[i].Policy
		}
	}
	var stale, away, differ, evicted int
	local := 0.0
	for i := range v.Instances {
		one := &v.Instances[i]
		row := instanceRow{one, own != "" && one.Policy != own && !one.Stale, float64(one.Store.Local) / 60}
		h.Instances = append(h.Instances, row)
		local += row.Local
		for of, yes := range map[*int]bool{&stale: one.Stale, &away: one.Store.Away > 0, &differ: row.Differs, &evicted: one.Store.Evicted > 0} {
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
	for i, yes := range []bool{r.Self, r.Store.Evicted > 0, r.Local > 0, r.Differs, r.Store.Away > 0, r.Stale} {
		if yes {
			n |= 1 << i
		}
	}
	return n
}

// words say what was done, without the key that it was done to.
func (a auditEntry) words() string {
	var of struct {
		Rule string `json:"rule"`
		Name string `json:"name"`
	}
	if json.Unmarshal(a.After, &of) != nil || of.Rule+of.Name == "" {
		_ = json.Unmarshal(a.Before, &of)
	}
	verb := map[string]string{"create": "made", "replace": "changed", "delete": "deleted", "refund": "gave back to", "take": "took over"}[a.Action]
	if verb == "" {
		verb = strings.TrimSuffix(a.Action, "e") + "ed"
	}
	if a.Action == "reset" {
		verb = "reset"
	}
	if a.Kind == "rules" {
		return verb + " the rules " + printable(a.Target)
	}
	out := verb + " " + strings.TrimSuffix(a.Kind, "s")
	if name := cmp.Or(of.Rule, of.Name); name != "" {
		out += " of " + printable(name)
		if a.Kind == "rule" || a.Kind == "rules" {
			out = verb + " rule " + printable(name)
		}
	}
	return out
}
