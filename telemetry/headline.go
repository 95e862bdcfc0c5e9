package telemetry

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Headline is the most important fact of a view, or one of its alerts.
type Headline struct {
	Level    string // "good", "bad" or "unknown"
	Text     string
	Rule     string   // the affected rule, if any
	Upstream string   // the affected upstream, if any
	Subject  *Subject // the affected subject, or nil
	Since    time.Time
	Alert    string // identifies the problem for as long as it lasts; empty without a problem
}

// Levels of a [Headline].
const (
	Good    = "good"
	Bad     = "bad"
	Unknown = "unknown"
)

// alerts returns the active alerts. An alert comes before the alerts that it explains.
func (v *View) alerts() (all []Headline) {
	add := func(name string, h *Headline) {
		if h != nil {
			h.Alert = name
			all = append(all, *h)
		}
	}
	add("store", v.storeUnavailable())
	for i := range v.Upstreams {
		u := &v.Upstreams[i]
		add("upstream-failing:"+u.Name, v.upstreamFails(u))
		add("upstream-slow:"+u.Name, v.upstreamSlow(u))
	}
	for i := range v.Rules {
		add("one-address:"+v.Rules[i].Name, v.oneForAll(&v.Rules[i]))
	}
	for i := range v.Rules {
		add(v.shedding(&v.Rules[i]))
	}
	for _, r := range v.unusual() {
		add("refusing:"+r.Name, v.refusing(r))
	}
	add("policy-refused", v.policyRefused())
	add("silent", v.silent())
	return all
}

// Alerts returns the active alerts. If there are more than limit, it returns only the first ones. An alert comes
// before the alerts that it explains.
func (v *View) Alerts(limit int) []Headline {
	all := v.alerts()
	return all[:min(limit, len(all))]
}

// Headline returns the first alert or, without an alert, a summary, as one or a few sentences for the operator on call.
// Times in the text are UTC.
func (v *View) Headline() Headline { return v.HeadlineExcept(func(string) bool { return false }) }

// HeadlineExcept does what Headline does, but ignores alerts for which the function silenced returns true.
func (v *View) HeadlineExcept(silenced func(alert string) bool) Headline {
	left := 0
	for _, h := range v.alerts() {
		if silenced(h.Alert) {
			left++
			continue
		}
		if h.Level == Bad && !silenced("silent") {
			h.Text += v.missing()
		}
		return h
	}
	if h := v.empty(); h != nil {
		return *h
	}
	h := v.nothingUnusual(left > 0)
	if left > 0 {
		h.Text = strings.Replace(h.Text, "Nothing unusual", "Nothing else is unusual", 1)
	}
	return h
}

// storeUnavailable returns the alert for a shared store that does not answer.
func (v *View) storeUnavailable() *Headline {
	without, shards, local := 0, 0, uint64(0)
	unavailable := 0
	for _, i := range v.Instances {
		if i.Store.Unavailable > 0 && !i.Stale {
			without++
			unavailable, shards = max(unavailable, i.Store.Unavailable), max(shards, i.Store.Shards)
			local += i.Store.Local
		}
	}
	if without == 0 {
		return nil
	}
	h := &Headline{Level: Bad, Since: v.circuitOpened()}
	what := "the shared store is unavailable"
	if unavailable < shards {
		what = fmt.Sprintf("%d of %d shards of the shared store are unavailable", unavailable, shards)
	}
	if h.Since.IsZero() {
		what = strings.ToUpper(what[:1]) + what[1:]
	} else {
		what = "Since " + v.clock(h.Since) + " " + what
	}
	if len(v.Instances) > 1 {
		what += fmt.Sprintf(" for %d of %d instances", without, len(v.Instances))
	}
	h.Text = what + fmt.Sprintf(": each rule's on_error decides instead (%s in the last minute).", number(local, "decision"))
	return h
}

// circuitOpened returns when an instance without the store noticed the outage, or the zero time if that is unknown.
func (v *View) circuitOpened() (at time.Time) {
	for _, i := range v.Instances {
		if i.Store.Unavailable == 0 || i.Stale {
			continue
		}
		for _, e := range v.Events {
			if e.Kind == "circuit" && e.Instance == i.Name {
				if at.IsZero() || e.At.Before(at) {
					at = e.At
				}
				break
			}
		}
	}
	return at
}

// A private address with more than the fraction everybody of a rule's traffic is probably a proxy and not a client.
const (
	everybody      = 0.9
	everybodyLeast = 100 // requests
)

// oneForAll returns the alert for a rule under which all clients look like one, because of a proxy that is not
// trusted.
func (v *View) oneForAll(r *Rule) *Headline {
	top := &r.Traffic[Hour]
	if len(top.Items) == 0 || top.Total < everybodyLeast {
		return nil
	}
	s := &top.Items[0]
	addr, private := privateAddress(s.Key)
	if !private || float64(s.Count-min(s.Error, s.Count)) <= everybody*float64(top.Total) {
		return nil
	}
	if top.Total*2 < v.within(RecentSteps).all {
		return nil
	}
	what := "one private address (" + v.name(s) + ")" // in the form that the rule shows
	if strings.Contains(s.Shown, addr) {
		what = addr
	}
	h := &Headline{Level: Unknown, Rule: r.Name, Subject: s}
	h.Text = fmt.Sprintf("Nearly all requests come from %s. If it is your load balancer, add it to trusted_proxies to distinguish clients.", what)
	if r.Refusals[Hour].Total > 0 {
		h.Level = Bad
	}
	return h
}

// privateAddress returns the private address in a key.
func privateAddress(key string) (addr string, found bool) {
	for part := range strings.SplitSeq(key, "/") {
		a, err := netip.ParseAddr(part)
		if err == nil && (a.IsPrivate() || a.IsLoopback()) {
			return a.String(), true
		}
	}
	return "", false
}

// unusual returns the rules that deny more than usual, the largest excess first. If the whole policy is in shadow mode,
// it returns none, because no rule denies anything.
func (v *View) unusual() (all []*Rule) {
	if v.watchOnly {
		return nil
	}
	more := map[*Rule]float64{}
	requests := v.perSecond(&v.All, nil, (*Counts).Total)
	for i := range v.Rules {
		r := &v.Rules[i]
		if r.Load != nil { // see shedding
			continue
		}
		rate := v.rate(r)
		asked := max(v.perSecond(&r.Series, nil, (*Counts).Total), 1e-9)
		if (usual{r.Usual, r.usualShare}).exceeded(refusing{rate, rate / max(requests, asked), rate / asked}) {
			all, more[r] = append(all, r), rate-max(r.Usual, 0)
		}
	}
	slices.SortStableFunc(all, func(a, b *Rule) int { return cmp.Compare(more[b], more[a]) })
	return all
}

// refusing returns the alert for a rule that denies more than usual.
func (v *View) refusing(r *Rule) *Headline {
	rate := v.rate(r)
	h := &Headline{Level: Bad, Rule: r.Name, Since: v.began(r, rate)}
	usually := ""
	if r.Usual >= 0 {
		usually = fmt.Sprintf(" (usually %s)", decimal(r.Usual))
	}
	h.Text = fmt.Sprintf("Since %s %s %s %s/s%s.", v.clock(h.Since), plain(title(r.Name)), verb(r.Name), decimal(rate), usually)
	subjects, subject := v.refusedSubjects(r)
	h.Text, h.Subject = h.Text+subjects, subject
	return h
}

// title returns the name of a rule for a sentence.
func title(name string) string {
	switch name {
	case OtherRules:
		return "rules beyond the first " + grouped(MaxRules)
	case CallerRule:
		return "limits sent by callers"
	}
	return name
}

func verb(name string) string {
	if title(name) != name {
		return "deny"
	}
	return "denies"
}

// A sentence names the first subject if this subject has at least the fraction oneShare of the denials, or if it and up
// to nine others have at least tenShare.
const (
	oneShare = 0.5
	tenShare = 0.8
)

// refusedSubjects describes the subjects that a rule denies, without blocked ones.
func (v *View) refusedSubjects(r *Rule) (text string, first *Subject) {
	w := Minute
	top, subjects := r.Unblocked(w)
	if top.Total == 0 {
		w = Hour
		top, subjects = r.Unblocked(w)
	}
	if len(top.Items) == 0 || top.Total == 0 {
		return "", nil
	}
	one, ten := top.share(1), top.share(10)
	first = &top.Items[0]
	switch {
	case one >= oneShare && subjects <= 1:
		others := "The rule denies no other subject."
		if r.Refused[w] > subjects {
			others = "The rule denies no other subject that is not blocked."
		}
		return fmt.Sprintf(" 1 subject has %s of the denials: %s. %s", percent(one), v.name(first), others), first
	case one >= oneShare:
		return fmt.Sprintf(" 1 subject has %s of the denials: %s. %s denied, too.", percent(one), v.name(first), others(subjects-1)), first
	case ten >= tenShare:
		n := min(len(top.Items), 10)
		return fmt.Sprintf(" %d subjects have %s of the denials, first %s with %s.", n, percent(ten), v.name(first), percent(one)), first
	}
	return fmt.Sprintf(" Many subjects are denied (%s), none with more than %s of the denials: the limit may be too low, or many clients came at once.", grouped(subjects), percent(max(one, 0.001))), nil
}

// pseudonymShown is how many digits of a pseudonym a sentence has.
const pseudonymShown = 6

// name returns the name of a subject for a sentence. A shortened key gets its pseudonym, because many shortened
// keys look alike.
func (v *View) name(s *Subject) string {
	name := plain(s.Shown)
	if v.engine == nil || !strings.Contains(s.Shown, "…") {
		return name
	}
	subject, err := v.engine.SubjectOf(s.Key)
	if err != nil {
		return name
	}
	return name + " #" + subject.Pseudonym()[:pseudonymShown]
}

// Unblocked returns the subjects that the rule denied in a window, and their number. Subjects denied by a block are
// left out, because the operator knows them.
func (r *Rule) Unblocked(w Window) (top Top, subjects uint64) {
	top, subjects = r.Refusals[w], r.Refused[w]
	if !slices.ContainsFunc(top.Items, func(s Subject) bool { return s.Blocked > 0 }) {
		return top, subjects
	}
	items := make([]Subject, 0, len(top.Items))
	for _, s := range top.Items {
		top.Total -= min(s.Blocked, top.Total)
		if s.Count -= min(s.Blocked, s.Count); s.Count > s.Error {
			items = append(items, s)
		} else if subjects > 0 {
			subjects--
		}
	}
	slices.SortStableFunc(items, func(a, b Subject) int { return cmp.Compare(b.Count, a.Count) })
	top.Items = items
	return top, subjects
}

// share returns the fraction of the total that the first n subjects have, from 0 to 1.
func (t *Top) share(n int) float64 {
	sum := uint64(0)
	for i := range t.Items[:min(n, len(t.Items))] {
		sum += t.Items[i].Count
	}
	return min(float64(sum)/float64(max(t.Total, 1)), 1)
}

func others(n uint64) string {
	if n == 1 {
		return "1 other is"
	}
	return grouped(n) + " others are"
}

// policyRefused returns the alert for a new policy that is invalid, so that an older one stays in force.
func (v *View) policyRefused() *Headline {
	known := make(map[string]bool)
	for i := range v.Events {
		e := &v.Events[i]
		if e.Kind != "reload" && e.Kind != "refused" && e.Kind != "start" || known[e.Instance] {
			continue
		}
		known[e.Instance] = true
		running := slices.ContainsFunc(v.Instances, func(i Instance) bool { return i.Name == e.Instance && !i.Stale })
		if e.Kind == "refused" && running {
			h := &Headline{Level: Bad, Since: e.At}
			h.Text = fmt.Sprintf("At %s an invalid policy was rejected, and the older one stays in force: %s.", v.clock(e.At), strings.TrimSuffix(plain(e.Text), "."))
			return h
		}
	}
	return nil
}

// silent returns the alert for stale instances.
func (v *View) silent() *Headline {
	text := v.missing()
	if text == "" {
		return nil
	}
	h := &Headline{Level: Unknown, Text: strings.TrimSpace(text), Since: v.At}
	for _, i := range v.Instances {
		if i.Stale {
			h.Since = earlier(h.Since, i.Seen)
		}
	}
	return h
}

// missing names the instances with missing counts.
func (v *View) missing() string {
	var stale []Instance
	for _, i := range v.Instances {
		if i.Stale {
			stale = append(stale, i)
		}
	}
	if len(stale) == 0 {
		return ""
	}
	slices.SortFunc(stale, func(a, b Instance) int { return cmp.Or(a.Seen.Compare(b.Seen), strings.Compare(a.Name, b.Name)) })
	first := stale[0]
	text := fmt.Sprintf(" No data for %s: instance %s", age(v.At.Sub(first.Seen)), plain(first.Name))
	if more := len(stale) - 1; more > 0 {
		return text + fmt.Sprintf(" and %s do not respond.", number(uint64(more), "other"))
	}
	return text + " does not respond."
}

// empty returns the headline before the first request.
func (v *View) empty() *Headline {
	for _, c := range v.All.Days {
		if c.Total() > 0 {
			return nil
		}
	}
	return &Headline{Level: Unknown, Text: "No request has come yet.", Since: v.Since}
}

// nothingUnusual returns the headline if all alerts are silenced, or if no alert is active. If many requests are
// denied, the headline reports this. The parameter reports whether any alert is silenced.
func (v *View) nothingUnusual(silenced bool) Headline {
	h := Headline{Level: Good}
	hour, lately, now := v.within(RecentSteps), v.within(latelySteps), v.within(minuteSteps)
	switch {
	case hour.all == 0:
		h.Text = "Nothing unusual. No requests in the last hour."
		return h
	case now.share() >= muchRefused && v.perSecond(&v.All, v.All.blockedRecent, denied) >= unusualLeast, hour.share() >= muchRefused && lately.share() >= muchRefused:
		return v.muchRefused(now, lately, hour, silenced)
	case hour.share() >= muchRefused:
		h.Text = fmt.Sprintf("Nothing unusual now. %s denied in the last 10 minutes, %s in the last hour", percent(lately.share()), percent(hour.share()))
	case hour.refused+hour.blocked == 0:
		h.Text = fmt.Sprintf("Nothing unusual. 0 of %s denied in the last hour", number(hour.all, "request"))
	default:
		h.Text = fmt.Sprintf("Nothing unusual. %s denied", percent(hour.share()))
		if v.watchOnly {
			h.Text += " in the last hour"
		}
	}
	if hour.blocked > 0 {
		h.Text += fmt.Sprintf(", and %s blocked", percent(float64(hour.blocked)/float64(hour.all)))
	}
	if before, known := v.yesterday(); known {
		if a, b := hour.share(), before.share(); alike(a, b) {
			h.Text += ", as yesterday at this hour"
		} else {
			h.Text += fmt.Sprintf(" (yesterday at this hour %s)", percent(b))
		}
	}
	h.Text += "."
	return h
}

// muchRefused returns the headline if many requests are or were denied, without an alert that is not silenced.
func (v *View) muchRefused(now, lately, hour refusedOf, silenced bool) Headline {
	h := Headline{Level: Unknown}
	h.Text = fmt.Sprintf("%s of requests denied in the last minute, %s in the last 10 minutes, %s in the last hour.",
		percent(now.share()), percent(lately.share()), percent(hour.share()))
	if silenced {
		h.Text = "Nothing unusual. " + h.Text
		return h
	}
	if v.watchOnly {
		h.Text += " Nothing is denied now: the whole policy is in shadow mode."
		return h
	}
	h.Text += " No rule denies more than usual now"
	most := 0.0
	for i := range v.Rules {
		if rate := v.rate(&v.Rules[i]); rate > most {
			most, h.Rule = rate, v.Rules[i].Name
		}
	}
	if h.Rule != "" {
		h.Text += fmt.Sprintf("; %s %s the most", plain(title(h.Rule)), verb(h.Rule))
	}
	h.Text += "."
	return h
}

// latelySteps are ten minutes and the current step.
const latelySteps = 61

// refusedOf has the number of all requests, of requests that a block denied (blocked), and of requests that were
// denied otherwise (refused).
type refusedOf struct{ all, refused, blocked uint64 }

// add adds the counts of a step, of which a block denied the number byBlock.
func (r *refusedOf) add(c *Counts, byBlock uint64) {
	r.all += c.Total()
	r.blocked += byBlock
	r.refused += c[Deny] - min(byBlock, c[Deny])
}

func (r refusedOf) share() float64 { return float64(r.refused) / float64(max(r.all, 1)) }

// within returns the numbers of the last steps, over all rules.
func (v *View) within(steps int) (r refusedOf) {
	for i := max(len(v.All.Recent)-steps, 0); i < len(v.All.Recent); i++ {
		r.add(&v.All.Recent[i], v.All.blockedRecent.at(i))
	}
	return r
}

// alike reports whether two fractions are about the same: neither is more than twice the other, or they differ by at
// most half a percent.
func alike(a, b float64) bool {
	return max(a, b) <= 2*min(a, b) || max(a, b)-min(a, b) <= 0.005
}

// yesterday returns the numbers of a day ago, from half an hour before to half an hour after this time.
func (v *View) yesterday() (r refusedOf, known bool) {
	const day, half = int(aDay / LongStep), int(aroundHour / LongStep)
	last := len(v.All.Days) - 1
	if last-day-half < 0 {
		return r, false
	}
	for i := last - day - half; i < last-day+half; i++ {
		r.add(&v.All.Days[i], v.All.blockedDays.at(i))
	}
	return r, r.all > 0
}

// rate returns the denials a second of a rule in the last minute, without those of blocks.
func (v *View) rate(r *Rule) float64 {
	return v.perSecond(&r.Series, r.blockedRecent, denied)
}

// BlockedRate returns the number of denials a second, in the last minute, by blocks of a rule or, if r is nil, of
// all rules.
func (v *View) BlockedRate(r *Rule) float64 {
	if r == nil {
		return v.perSecond(&v.All, nil, denied) - v.perSecond(&v.All, v.All.blockedRecent, denied)
	}
	return v.perSecond(&r.Series, nil, denied) - v.rate(r)
}

func denied(c *Counts) uint64 { return c[Deny] }

// perSecond returns a count per second in the last minute. The last parameter selects the count. The parameter
// without has the part of the count to leave out in each step.
func (v *View) perSecond(s *Series, without perStep, of func(*Counts) uint64) float64 {
	var n uint64
	for i := max(len(s.Recent)-minuteSteps, 0); i < len(s.Recent); i++ {
		more := of(&s.Recent[i])
		n += more - min(without.at(i), more)
	}
	seconds := (minuteSteps - 1) * Step.Seconds()
	seconds += v.At.Sub(v.At.Truncate(Step)).Seconds()
	if up := v.At.Sub(v.Since).Seconds(); up < seconds {
		seconds = max(up, Step.Seconds())
	}
	return float64(n) / seconds
}

// A step belongs to the present incident if it has at least a fifth of the present rate, and at least the usual
// rate. A pause within an incident has at most pauseSteps Steps, or pauseLong LongSteps.
const (
	beganShare = 0.2
	pauseSteps = 6
	pauseLong  = 1
)

// began returns when a rule started to deny at about the present rate.
func (v *View) began(r *Rule, rate float64) time.Time {
	least := max(rate*beganShare, max(r.Usual, 0))
	steps, all := walkBack(r.Recent, r.blockedRecent, least*Step.Seconds(), pauseSteps)
	at := stepTime(v.At, Step, steps)
	if all && len(r.Recent) == RecentSteps {
		if long, _ := walkBack(r.Days, r.blockedDays, least*LongStep.Seconds(), pauseLong); stepTime(v.At, LongStep, long).Before(at) {
			at = stepTime(v.At, LongStep, long)
		}
	}
	return later(at, v.Since)
}

// stepTime returns the start of the step that is the given number of steps before the present one.
func stepTime(now time.Time, step time.Duration, back int) time.Time {
	return now.Truncate(step).Add(-time.Duration(back) * step).UTC()
}

// walkBack returns how many steps ago the present incident began. A step belongs to the incident if it has at least the
// given minimum of denials, not counting denials by blocks. A pause ends the incident only if it has more than maxPause
// steps. The result all is true if the incident goes back to about the first step.
func walkBack(counts []Counts, blocked perStep, minimum float64, maxPause int) (back int, all bool) {
	quiet := 0
	for i := len(counts) - 1; i >= 0 && quiet <= maxPause; i-- {
		if n := float64(counts[i][Deny]) - float64(blocked.at(i)); n > 0 && n >= minimum {
			back, quiet = len(counts)-1-i, 0
		} else {
			quiet++
		}
	}
	return back, back+maxPause >= len(counts)-1
}
