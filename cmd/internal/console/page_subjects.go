package console

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// subjects shows the subject that the request names, or searches for subjects.
func (s *server) subjects(c *call) error {
	q := c.URL.Query()
	if q.Get("rule") != "" && namesKey(q) {
		ref, err := c.subjectOf(q)
		if err != nil {
			return err
		}
		return s.subject(c, ref)
	}
	found, err := c.search(strings.TrimSpace(q.Get("q")), q.Get("rule"))
	if err != nil {
		return err
	}
	if found.Asked != "" && len(found.Hits) == 0 {
		refusals, err := s.Control.Refusals(c.Context(), c.caller, found.Asked)
		if err == nil && len(refusals.Refusals) > 0 {
			return c.redirect("/explain?" + url.Values{"id": {found.Asked}}.Encode())
		}
	}
	return s.show(c, http.StatusOK, "subjects", page{Title: "Subjects", Section: "subjects", Script: "acts.js", Data: found})
}

// namesKey reports whether a query names a subject: by values of key parts, or by the parameter "all" for a rule
// without a key.
func namesKey(q url.Values) bool {
	for name := range q {
		if strings.HasPrefix(name, "key.") {
			return true
		}
	}
	return q.Has("all")
}

// found is the result of a search.
type found struct {
	Asked string
	// Hits are the subjects that were found, sorted by the used fraction of their limits, largest first.
	Hits []hit
	More int // hits that are not shown
	// Unseen are possible subjects that have neither counts nor settings.
	Unseen []hit
	// Forms are the rules whose keys need more values than the query has.
	Forms []keyForm
	Rules []string // the rules with a key, as options of a form
	// RequestID reports whether the query may be the ID of a request.
	RequestID bool
	Seen      []topRow // without a query: the subjects with the most denials in the last hour
}

type hit struct {
	Rule, Part, Shown, URL string
	Most                   limit // the limit with the largest used fraction
	Seen                   *telemetry.Subject
}

// keyForm is a form for the key of a rule. One part may already have a value.
type keyForm struct {
	Rule        string
	Parts       []string
	Part, Value string
}

const (
	maxHits  = 100
	maxForms = 20
)

// search finds the subjects with a value, an ID or a key.
func (c *call) search(asked, onlyRule string) (*found, error) {
	rules := c.policy.Document.Rules
	out := &found{Asked: asked}
	view := c.view()
	for i := range rules {
		if r := &rules[i]; len(countedParts(r)) > 0 && !r.Exempt && !r.Block && len(out.Rules) < 1000 {
			out.Rules = append(out.Rules, r.Name)
		}
	}
	switch {
	case asked == "" && onlyRule != "":
		rule, err := c.rule(onlyRule)
		if err != nil {
			return nil, err
		}
		out.Forms = []keyForm{{Rule: rule.Name, Parts: countedParts(rule)}}
		return out, nil
	case asked == "":
		out.Seen = c.recentlyRefused(view, rules)
		return out, nil
	}
	if ref, err := c.subjectByID(asked); err == nil {
		out.Hits = append(out.Hits, hit{Rule: ref.Rule.Name, Shown: ref.Shown, URL: ref.Page(), Seen: seenSubject(view, ref.Rule.Name, ref.Text)})
	}
	for i := range rules {
		if r := &rules[i]; !r.Exempt && !r.Block && (onlyRule == "" || r.Name == onlyRule) {
			c.searchRule(out, view, r, asked)
		}
	}
	c.searchSeen(out, view, asked)
	c.weigh(out)
	out.RequestID = !slices.ContainsFunc(out.Hits, func(h hit) bool { return h.Seen != nil })
	return out, nil
}

// searchRule adds the subject of a rule for which the query is the key. If keys of the rule have several parts, it
// adds a form for them.
func (c *call) searchRule(out *found, view *telemetry.View, r *policy.Rule, asked string) {
	parts := countedParts(r)
	for _, part := range parts {
		if !fits(part, asked) {
			continue
		}
		if len(parts) > 1 {
			if _, err := netip.ParseAddr(asked); err == nil && part != "client_ip" {
				continue
			}
			if len(out.Forms) < maxForms {
				out.Forms = append(out.Forms, keyForm{r.Name, parts, part, asked})
			}
			continue
		}
		key := map[string]string{part: asked}
		name, err := c.s.Control.NameOf(c.caller, control.Target{Rule: r.Name, Key: key})
		if err != nil {
			continue // the query is not a valid value of this part
		}
		h := hit{Rule: r.Name, Part: part, Shown: withPseudonym(name.Shown, name.Pseudonym), URL: "/subjects?" + subjectQuery(r.Name, key).Encode()}
		if h.Seen = seenSubject(view, r.Name, name.Text); h.Seen != nil && h.Seen.ID != "" {
			h.URL = subjectPage(h.Seen.ID)
		}
		known := h.Seen != nil
		if states, err := c.s.Control.Subjects(c.Context(), c.caller, r.Name, key); err == nil {
			state := &states.Rules[0]
			h.Most = fullest(state.Limits)
			known = known || h.Most.Used > 0 || state.Override != nil || state.Blocked
		}
		if known {
			out.Hits = append(out.Hits, h)
			continue
		}
		if _, err := netip.ParseAddr(asked); err != nil || part == "client_ip" { // other parts rarely have IP addresses as values
			out.Unseen = append(out.Unseen, h)
		}
	}
}

// fits reports whether a text may be a value of a key part. The value of client_ip is an IP address; a method or
// host is not one.
func fits(part, value string) bool {
	_, err := netip.ParseAddr(value)
	switch part {
	case "client_ip":
		return err == nil
	case "method", "route", "host":
		return err != nil && !strings.ContainsRune(value, ' ') || part == "route"
	}
	return true
}

// searchSeen adds the subjects of a view with the text in their shown key or at the start of their pseudonym.
func (c *call) searchSeen(out *found, view *telemetry.View, asked string) {
	known := map[string]bool{}
	for _, h := range out.Hits {
		if h.Seen != nil {
			known[h.Seen.ID] = true
		}
	}
	low := strings.ToLower(asked)
	pseudonym, may := isPseudonym(asked)
	fits := func(s *telemetry.Subject) bool {
		if strings.Contains(strings.ToLower(s.Shown), low) {
			return true
		}
		if !may {
			return false
		}
		name, err := c.s.Control.Name(c.caller, s.Key)
		return err == nil && strings.HasPrefix(name.Pseudonym, pseudonym)
	}
	for i := range view.Rules {
		r := &view.Rules[i]
		for w := range telemetry.Windows {
			for _, top := range []*telemetry.Top{&r.Refusals[w], &r.Traffic[w]} {
				for j := range top.Items {
					s := &top.Items[j]
					if s.ID == "" || known[s.ID] || !fits(s) {
						continue
					}
					known[s.ID] = true
					out.Hits = append(out.Hits, hit{Rule: r.Name, Shown: c.shownSubject(s), URL: subjectPage(s.ID), Seen: s})
				}
			}
		}
	}
}

// weigh removes duplicate hits, and sorts the hits by the used fraction of their limits, largest first; of equal
// hits, subjects in telemetry come first. It keeps at most maxHits.
func (c *call) weigh(out *found) {
	seen := map[string]bool{}
	out.Hits = slices.DeleteFunc(out.Hits, func(h hit) bool {
		again := seen[h.Rule+" "+h.Shown+" "+h.URL]
		seen[h.Rule+" "+h.Shown+" "+h.URL] = true
		return again
	})
	slices.SortStableFunc(out.Hits, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.Most.Percent(), a.Most.Percent()), btoi(b.Seen != nil)-btoi(a.Seen != nil))
	})
	if len(out.Hits) > maxHits {
		out.More = len(out.Hits) - maxHits
		out.Hits = out.Hits[:maxHits]
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// recentlyRefused returns the subjects with the most denials in the last hour, of all rules.
func (c *call) recentlyRefused(view *telemetry.View, rules []policy.Rule) (all []topRow) {
	shadow := map[string]bool{}
	for i := range rules {
		shadow[rules[i].Name] = rules[i].Shadow || c.shadow() != nil
	}
	for i := range view.Rules {
		r := &view.Rules[i]
		for _, s := range r.Refusals[telemetry.Hour].Items {
			all = append(all, topRow{Subject: s, Rule: r.Name, URL: subjectPage(s.ID), Would: shadow[r.Name]})
		}
	}
	slices.SortStableFunc(all, func(a, b topRow) int { return cmp.Compare(b.Count, a.Count) })
	all = all[:min(len(all), 20)]
	for i := range all {
		all[i].Shown = c.shownSubject(&all[i].Subject)
	}
	return all
}

// subjectByIDPage shows the subject with an ID.
func (s *server) subjectByIDPage(c *call) error {
	ref, err := c.subjectByID(c.PathValue("id"))
	if err != nil {
		return err
	}
	return s.subject(c, ref)
}

// subjectShown is the data of the page of a subject.
type subjectShown struct {
	*subjectRef
	State       *control.SubjectState
	Tier        string
	Unavailable *control.Problem
	Windows     []seenWindow
	Strips      []*strip
	Others      []otherRule
	Database    bool
	Part        string // the key part, if the key has only one
}

// otherRule is the state that another rule has for the same key.
type otherRule struct {
	control.SubjectState
	URL string // "" if the URL would contain a key that the caller must not see
}

// strip is a drawing of a subject's requests in the last hour.
type strip struct {
	Name, Kind string
	Spark      spark
	Label      string // the text of the drawing
	From, To   time.Time
}

// seenWindow is the telemetry of a subject in a window.
type seenWindow struct {
	Name             string
	Refused, Traffic *telemetry.Subject
}

// subject shows the page of a subject.
func (s *server) subject(c *call, ref *subjectRef) error {
	d := &subjectShown{subjectRef: ref, Database: c.policy.Database}
	view := c.view()
	if to := c.withoutKey(view, ref); to != "" {
		return c.redirect(to)
	}
	if states, err := c.statesOf(ref); err == nil {
		d.State = &states.Rules[0]
		for _, l := range d.State.Limits {
			if tier, found := strings.CutPrefix(l.From, "tier:"); found {
				d.Tier = tier
			}
		}
	} else if d.Unavailable, err = c.refusal(err); err != nil {
		return err
	}
	if ref.Key != nil {
		d.others(c, view)
	}
	d.seen(view)
	return s.show(c, http.StatusOK, "subject", pageOf("Subject of "+ref.Rule.Name, "subjects", d))
}

// withoutKey returns the URL of a subject's page with the subject's ID instead of its key. It returns "" if the
// rule shows whole keys, or if telemetry has no ID for the subject.
func (c *call) withoutKey(v *telemetry.View, ref *subjectRef) string {
	seen := seenSubject(v, ref.Rule.Name, ref.Text)
	if ref.ID != "" || ref.Whole || seen == nil || seen.ID == "" {
		return ""
	}
	if _, err := c.s.Control.NameOf(c.caller, control.Target{ID: seen.ID}); err != nil {
		return ""
	}
	to := subjectPage(seen.ID)
	if done := c.URL.Query().Get("done"); done != "" {
		to += "?" + url.Values{"done": {done}}.Encode()
	}
	return to
}

// statesOf returns the state of a subject. It uses the subject's ID if only a hash of the key is known.
func (c *call) statesOf(ref *subjectRef) (*control.SubjectLimits, error) {
	if ref.Key != nil {
		return c.s.Control.Subjects(c.Context(), c.caller, ref.Rule.Name, ref.Key)
	}
	return c.s.Control.SubjectByID(c.Context(), c.caller, ref.ID)
}

// others adds the states that other rules have for the same key.
func (d *subjectShown) others(c *call, v *telemetry.View) {
	parts := countedParts(d.Rule)
	if len(parts) != 1 || d.Key[parts[0]] == "" {
		return
	}
	states, err := c.s.Control.Subjects(c.Context(), c.caller, "", d.Key)
	if err != nil {
		return // the page is useful without the other rules
	}
	for _, state := range states.Rules {
		if state.Rule != d.Rule.Name {
			_, link := c.link(v, state.Rule, d.Key)
			d.Others = append(d.Others, otherRule{state, link})
		}
	}
	d.Part = parts[0]
}

// strip adds a drawing of the subject's requests, unless s is nil or has no requests.
func (d *subjectShown) strip(name, kind string, s *telemetry.Subject, at time.Time) {
	if s == nil || slices.Max(s.Steps[:]) == 0 {
		return
	}
	values := make([]float64, len(s.Steps))
	words := make([]string, len(s.Steps))
	for i, n := range s.Steps {
		values[i], words[i] = float64(n), number(n)
	}
	to := at.Truncate(telemetry.SubjectStep).Add(telemetry.SubjectStep)
	d.Strips = append(d.Strips, &strip{
		name, kind, sparkOf(values), name + " in steps of five minutes, estimated, from an hour ago to now: " + strings.Join(words, ", "),
		to.Add(-time.Duration(len(values)) * telemetry.SubjectStep), at,
	})
}

func (d *subjectShown) seen(v *telemetry.View) {
	r := v.Rule(d.Rule.Name)
	if r == nil {
		return
	}
	for w := range telemetry.Window(telemetry.Windows) {
		row := seenWindow{w.String(), find(r.Refusals[w].Items, d.Text), find(r.Traffic[w].Items, d.Text)}
		if row.Refused != nil || row.Traffic != nil {
			d.Windows = append(d.Windows, row)
		}
	}
	refused, kind := "Denied", "deny"
	if d.Rule.Shadow {
		refused, kind = "Would be denied", "would"
	}
	d.strip(refused, kind, find(r.Refusals[telemetry.Hour].Items, d.Text), v.At)
	d.strip("Requests", "all", find(r.Traffic[telemetry.Hour].Items, d.Text), v.At)
}
