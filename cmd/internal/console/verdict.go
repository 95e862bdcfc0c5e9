package console

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/telemetry"
)

// verdict is the console's guess whether the denials of a rule are due to an attacker, or to a limit that is too
// low.
type verdict struct {
	Rule     string
	Words    string
	Detail   string
	Kind     string // the color of Words: good, warn, bad or info
	Shares   []share
	Refused  uint64 // the number of denied subjects
	Asked    uint64
	Refusals uint64
	Would    bool // the rule is in shadow mode, so no request was denied
	Uses     []use
	UsesOf   int // the number of subjects in Uses
	// Everybody is the subject with nearly all traffic, if it has a private address.
	Everybody string
	Of        float64 // the fraction of the traffic from Everybody
}

// share is the fraction of all denials that belongs to the subjects with the most denials.
type share struct {
	Name string
	Of   float64
}

// use is a bar of the histogram. It counts the subjects in a range of the ratio of requests to the limit.
type use struct {
	Name string
	N    int
	High float64 // the height as a fraction of the highest bar
	Over bool    // above the limit
}

// useBounds are the lower bounds of the bars' ranges. From the third on, each is twice the one before.
var useBounds = [...]float64{0, 0.25, 0.5, 1, 2, 4, 8, 16, 32, 64}

var useNames = [...]string{"<¼", "¼", "½", "1", "2", "4", "8", "16", "32", "64+"}

const overFrom = 3 // the index of the bar that starts at the limit

// overloadVerdict returns the verdict for a rule with an automatic limit, which does not blame subjects.
func overloadVerdict(r *telemetry.Rule) *verdict {
	v := &verdict{Rule: r.Name, Kind: "good", Words: "The upstream is not overloaded.", Detail: "The rule denied nothing in the last minute."}
	by, would := r.Load.Sheds()
	if v.Would = would; by.Total() > 0 {
		v.Kind, v.Words, v.Detail = "warn", "The upstream is overloaded.", "The rule denies requests by their class, not by client."
	}
	return v
}

// judge returns the verdict for a rule in a window. It ignores denials by blocks.
func judge(r *telemetry.Rule, w telemetry.Window, l sluice.Limit, shadow bool) *verdict {
	if r.Load != nil {
		return overloadVerdict(r)
	}
	top, refused := r.Unblocked(w)
	v := &verdict{Rule: r.Name, Refused: refused, Asked: r.Asked[w], Refusals: top.Total, Would: shadow}
	if v.Refusals == 0 {
		if n := r.Refusals[w].Total; n > 0 {
			v.Kind, v.Words = "good", "Only blocked subjects."
			v.Detail = plural(n, "request was", "requests were") + " denied, by a block."
		}
		return v
	}
	sum, at := uint64(0), 0
	for _, n := range []int{1, 10, 100} {
		for ; at < min(n, len(top.Items)); at++ {
			sum += top.Items[at].Count
		}
		name := fmt.Sprintf("top %d", n)
		if n == 1 {
			name = "top one"
		}
		v.Shares = append(v.Shares, share{name, min(1, float64(sum)/float64(top.Total))})
		if at < n {
			break
		}
	}
	if l.Count < 1 {
		v.sharesInWords()
		return v
	}
	v.histogram(r, top.Items, w, l)
	v.words(timesOfRefused(r, top.Items, w, l))
	return v
}

// firstTen returns the subject of a sentence about the ten subjects with the most denials, or about all if they are
// fewer.
func (v *verdict) firstTen() string {
	if v.Refused > 10 {
		return "The first ten"
	}
	return plural(v.Refused, "subject", "subjects")
}

// sharesInWords sets the words of the verdict if requests cannot be compared with a limit: for a limit of requests
// in flight, or for a rule that was removed.
func (v *verdict) sharesInWords() {
	first, ten := v.Shares[0].Of, v.Shares[min(1, len(v.Shares)-1)].Of
	switch {
	case first >= 0.5:
		v.Kind, v.Words = "warn", "One subject."
		v.Detail = fmt.Sprintf("It causes %s of the denials: an attacker, or a client that ignores Retry-After.", percent(first))
	case ten >= 0.7:
		v.Kind, v.Words = "info", "Few subjects."
		v.Detail = fmt.Sprintf("%s cause %s of the denials: clients that should slow down, or need more.", v.firstTen(), percent(ten))
	default:
		v.Kind, v.Words = "warn", "Many subjects: the limit may be too low."
		v.Detail = fmt.Sprintf("%s share the denials.", plural(v.Refused, "subject", "subjects"))
	}
}

// timesRefused has the ratio of a subject's requests to its limit, and the number of its denials.
type timesRefused struct {
	times   float64
	refused uint64
}

// timesOfRefused returns the ratios of the denied subjects, the smallest first.
func timesOfRefused(r *telemetry.Rule, refused []telemetry.Subject, w telemetry.Window, l sluice.Limit) (all []timesRefused) {
	for i := range refused {
		all = append(all, timesRefused{timesOf(r, w, &refused[i], l), refused[i].Count})
	}
	slices.SortFunc(all, func(a, b timesRefused) int { return cmp.Compare(a.times, b.times) })
	return all
}

// median returns the ratio of requests to the limit for the median denial. The median subject could mislead: most
// subjects may have two denials each, while a few have nearly all denials.
func median(all []timesRefused) float64 {
	var sum, half uint64
	for _, t := range all {
		half += t.refused
	}
	half /= 2
	for _, t := range all {
		if sum += t.refused; sum > half {
			return t.times
		}
	}
	return 0
}

// timesOf returns the ratio of a denied subject's requests to its limit, at least 1. The limit is the one that
// denied the subject, or l if that limit is unknown. If the number of requests is unknown, timesOf assumes that the
// subject has used up the limit once, and adds the denials.
func timesOf(r *telemetry.Rule, w telemetry.Window, t *telemetry.Subject, l sluice.Limit) float64 {
	if t.Limit.Count > 0 {
		l = t.Limit
	}
	if asked := askedBy(r, w, t.Key); asked != nil {
		return max(1, timesLimit(l, max(asked.Count, t.Count), active(asked, w)))
	}
	return 1 + timesLimit(l, t.Count, active(t, w))
}

// askedBy returns the entry of a subject in the list of subjects by requests, or nil if it is missing or its count
// is too inexact.
func askedBy(r *telemetry.Rule, w telemetry.Window, key string) *telemetry.Subject {
	if asked := find(r.Traffic[w].Items, key); asked != nil && nearEnough(asked) {
		return asked
	}
	return nil
}

// nearEnough reports whether a count is at most a quarter too large.
func nearEnough(s *telemetry.Subject) bool { return s.Error <= s.Count/4 }

func (v *verdict) histogram(r *telemetry.Rule, refused []telemetry.Subject, w telemetry.Window, l sluice.Limit) {
	counts := make([]int, len(useBounds))
	add := func(times float64) {
		i := len(useBounds) - 1
		for i > 0 && times < useBounds[i] {
			i--
		}
		counts[i]++
		v.UsesOf++
	}
	for i := range refused {
		add(timesOf(r, w, &refused[i], l))
	}
	for i := range r.Traffic[w].Items {
		t, own := &r.Traffic[w].Items[i], l
		if t.Limit.Count > 0 {
			own = t.Limit
		}
		if find(r.Refusals[w].Items, t.Key) == nil && nearEnough(t) {
			add(timesLimit(own, t.Count, active(t, w)))
		}
	}
	most := slices.Max(counts)
	for i, n := range counts {
		v.Uses = append(v.Uses, use{useNames[i], n, float64(n) / float64(max(1, most)), i >= overFrom})
	}
}

func (v *verdict) words(times []timesRefused) {
	median := median(times)
	first := v.Shares[0].Of
	ten := v.Shares[min(1, len(v.Shares)-1)].Of
	refusals := "denials"
	if v.Would {
		refusals = "denials if it were enforced"
	}
	switch {
	case first >= 0.5:
		v.Kind = "bad"
		v.Words = "One subject, far above the limit."
		if median < 3 { // the median is the ratio of this subject
			v.Kind, v.Words = "warn", "One subject, not far above the limit."
		}
		v.Detail = fmt.Sprintf("It causes %s of the %s: an attacker, or a client that ignores Retry-After.", percent(first), refusals)
	case ten >= 0.7 && median >= 3:
		v.Kind, v.Words = "bad", "Few subjects, far above the limit."
		v.Detail = fmt.Sprintf("%s cause %s of the %s. At least half of these are of subjects at %s times the limit or more: an attack, or a script.", v.firstTen(), percent(ten), refusals, timesWords(median))
	case ten < 0.7 && median < 2:
		v.Kind, v.Words = "warn", "Many subjects, just above the limit: it may be too low."
		v.Detail = fmt.Sprintf("%s share the %s. Half of these are of subjects below %s times the limit.", plural(v.Refused, "subject", "subjects"), refusals, timesWords(max(median, 1.1)))
	case ten < 0.7:
		v.Kind, v.Words = "bad", "Many subjects, far above the limit."
		v.Detail = fmt.Sprintf("%s share the %s at about %s times the limit: a distributed attack, or a crowd.", plural(v.Refused, "subject", "subjects"), refusals, timesWords(median))
	default:
		v.Kind, v.Words = "info", "Few subjects, just above the limit."
		v.Detail = fmt.Sprintf("%s cause %s of the %s: clients that should slow down, or need more.", v.firstTen(), percent(ten), refusals)
	}
}

// timesWords formats a ratio to the limit: 1.4, 12, 340.
func timesWords(f float64) string {
	if f < 10 {
		return trimmed(f, true)
	}
	return number(int64(math.Round(f)))
}

// everybody sets Everybody if a rule counts by address and a single private address has nearly all traffic. That
// address is probably a proxy that the policy does not trust.
func (v *verdict) everybody(c *call, r *telemetry.Rule, w telemetry.Window) {
	top := &r.Traffic[w]
	if len(top.Items) == 0 || top.Total < 100 {
		return
	}
	first := &top.Items[0]
	of := float64(first.Count-min(first.Count, first.Error)) / float64(top.Total)
	name, err := c.s.Control.Name(c.caller, first.Key)
	if of <= 0.9 || err != nil {
		return
	}
	a, err := netip.ParseAddr(name.Key["client_ip"])
	if err != nil || !(a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast()) {
		return
	}
	if v.Everybody, v.Of = a.String(), of; !strings.Contains(first.Shown, v.Everybody) {
		v.Everybody = first.Shown // shortened or hashed by the rule's show_key
	}
}
