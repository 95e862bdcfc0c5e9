package incident_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/incident"
	"github.com/sluicehq/sluice/telemetry"
)

// During an hour with an attack, a View agrees with the books of the traffic.
func TestIncident(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := incident.Start(t)
		played := -incident.Lead + time.Minute
		for _, at := range []struct {
			minute int
			level  string
			about  string // the rule of the headline
			since  time.Duration
			who    string // the subject with the most denials
			alerts string // the alerts, in order
		}{
			{-2, "good", "", 0, "", ""},
			{1, "bad", "per-address", incident.ScraperBegins, incident.Scraper, "refusing:per-address"},
			{5, "bad", "per-address", incident.ScraperBegins, incident.Scraper, "refusing:per-address"},
			{15, "bad", "login", incident.LoginBegins, "", "refusing:login refusing:per-address"},
			{28, "bad", "per-address", incident.ScraperBegins, incident.Scraper, "refusing:per-address"},
			{30, "bad", "per-address", incident.ScraperBegins, incident.Scraper, "refusing:per-address"},
			{36, "bad", "", incident.SlowBegins, "", "upstream-slow:http://reports.test refusing:per-address refusing:reports"},
			{45, "bad", "", incident.FlapBegins, "", "store refusing:per-address refusing:login"},
			{50, "bad", "per-address", incident.ScraperBegins, incident.Scraper, "refusing:per-address"},
			{54, "unknown", "api", 0, "", ""},
			{60, "bad", "per-address", incident.SecondBegins, incident.Second, "refusing:per-address"},
		} {
			now := time.Duration(at.minute) * time.Minute
			for ; played < now; played += upstreamsEvery(played) {
				h.PlayTo(played)
				holdUpstreams(t, played, h.Fleet.View())
			}
			h.PlayTo(now)
			v := h.Fleet.View()
			name := fmt.Sprintf("minute %d", at.minute)
			head := v.Headline()
			if head.Level != at.level || head.Rule != at.about {
				t.Errorf("%s: %s about %q: %s", name, head.Level, head.Rule, head.Text)
			}
			var alerts []string
			for _, a := range v.Alerts(9) {
				alerts = append(alerts, a.Alert)
			}
			if got := strings.Join(alerts, " "); got != at.alerts {
				t.Errorf("%s: the alerts are %q, want %q", name, got, at.alerts)
			}
			// A full bucket allows a burst, so the denials start somewhat later.
			if begins := h.Time(at.since); at.level == "bad" && (head.Since.Before(begins) || head.Since.After(begins.Add(100*time.Second))) {
				t.Errorf("%s: the headline has the start %v, want %v or up to 100 s later", name, head.Since, begins)
			}
			holdHeadline(t, name, h, now, v, &head, at.who)
			holdCounts(t, name, h, now, v)
		}
		v := h.Fleet.View()
		holdSubjects(t, h, v)
		holdTiers(t, h, v)
	})
}

// upstreamsEvery returns the time between checks of the upstreams.
func upstreamsEvery(at time.Duration) time.Duration {
	if at >= incident.SlowBegins-time.Minute && at < incident.SlowEnds+3*time.Minute {
		return 10 * time.Second
	}
	return 4 * time.Minute
}

// holdUpstreams checks that the View reports the slow upstream while it is slow, and no other problem of upstreams.
func holdUpstreams(t *testing.T, now time.Duration, v *telemetry.View) {
	if now < incident.SlowBegins && v.At.Sub(v.Since) > 20*time.Minute {
		for i, usual := range []time.Duration{20 * time.Millisecond, 100 * time.Millisecond} {
			if got := v.Upstreams[i].Usual; got.P50 != usual || got.P99 != usual {
				t.Errorf("%v: usual for %s is %+v", now, v.Upstreams[i].Name, got)
			}
		}
	}
	slow := false
	for _, a := range v.Alerts(9) {
		slow = slow || a.Alert == "upstream-slow:"+incident.Reports
		if a.Upstream != "" && a.Alert != "upstream-slow:"+incident.Reports {
			t.Errorf("%v: %s", now, a.Text)
		}
	}
	// The last slow requests are answered SlowFor after SlowEnds, and the alert covers the last minute.
	switch {
	case slow && (now < incident.SlowBegins+incident.SlowFor || now > incident.SlowEnds+incident.SlowFor+70*time.Second),
		!slow && now > incident.SlowBegins+80*time.Second && now < incident.SlowEnds:
		t.Errorf("%v: the upstream is reported as slow: %v", now, slow)
	}
}

// holdHeadline compares the numbers in a headline with the books.
func holdHeadline(t *testing.T, name string, h *incident.Hour, now time.Duration, v *telemetry.View, head *telemetry.Headline, who string) {
	if head.Rule == "" || head.Level != "bad" {
		return
	}
	from := now - time.Minute - 10*time.Second
	truth := h.Books.Rule(head.Rule, from, now)
	rate := float64(truth.Refused-truth.Blocked) / 70
	shown := 0.0
	if _, text, found := strings.Cut(head.Text, " denies "); !found {
		t.Errorf("%s: %s", name, head.Text)
	} else if _, err := fmt.Sscanf(text, "%f/s", &shown); err != nil || math.Abs(shown-rate) > 0.1*rate+0.1 {
		t.Errorf("%s: %v requests a second are denied: %s", name, rate, head.Text)
	}
	if r := v.Rule(head.Rule); r.Usual > 0.05 {
		t.Errorf("%s: the usual rate is %v denials of %s", name, r.Usual, head.Rule)
	}
	subjects := h.Books.Subjects(head.Rule, now-time.Minute, now)
	most := slices.MaxFunc(slices.Collect(maps.Keys(subjects)), func(a, b string) int {
		return cmp.Compare(subjects[a].Refused-subjects[a].Blocked, subjects[b].Refused-subjects[b].Blocked)
	})
	if who == "" {
		if head.Rule == "login" && !slices.Contains(incident.Attacked, head.Subject.Shown) {
			t.Errorf("%s: the headline is about %s", name, head.Subject.Shown)
		}
		return
	}
	if most != who || head.Subject == nil || head.Subject.Shown != who || !strings.Contains(head.Text, who) {
		t.Errorf("%s: %s has the most denials: %s", name, most, head.Text)
	}
}

// holdCounts compares the counts of a view with the books. A request may be counted a second late, so the last hour may
// include requests from the second before it.
func holdCounts(t *testing.T, name string, h *incident.Hour, now time.Duration, v *telemetry.View) {
	from := max(now-time.Hour, -incident.Lead)
	hold := func(what string, s *telemetry.Series, least, most incident.Tally) {
		var asked, refused uint64
		for i := range s.Recent {
			asked += s.Recent[i].Total()
			refused += s.Recent[i][telemetry.Deny]
		}
		if asked < least.Asked || asked > most.Asked || refused < least.Refused || refused > most.Refused {
			t.Errorf("%s: for %s, the view has %d requests and %d denials, and the books have %+v", name, what, asked, refused, least)
		}
	}
	hold("all", &v.All, h.Books.Requests(from, now), h.Books.Requests(from-time.Second, now))
	for i := range v.Rules {
		r := &v.Rules[i]
		hold(r.Name, &r.Series, h.Books.Rule(r.Name, from, now), h.Books.Rule(r.Name, from-time.Second, now))
	}
}

// holdSubjects compares the subjects of the last hour in a view with the books.
func holdSubjects(t *testing.T, h *incident.Hour, v *telemetry.View) {
	for i := range v.Rules {
		r := &v.Rules[i]
		truth := h.Books.Subjects(r.Name, 0, time.Hour)
		refused := 0
		for _, one := range truth {
			if one.Refused > 0 {
				refused++
			}
		}
		top := &r.Refusals[telemetry.Hour]
		if len(top.Items) == 0 && refused > 0 || top.Total != h.Books.Rule(r.Name, 0, time.Hour).Refused {
			t.Errorf("%s: the view has %d of %d denials", r.Name, top.Total, h.Books.Rule(r.Name, 0, time.Hour).Refused)
		}
		if got := float64(r.Refused[telemetry.Hour]); math.Abs(got-float64(refused)) > 0.1*float64(refused) {
			t.Errorf("%s: the view has %v denied subjects, and the books have %d", r.Name, got, refused)
		}
		for _, s := range top.Items {
			if r.Name == "api" || r.Name == "export" {
				break // the keys of these rules are shortened
			}
			is, known := truth[s.Shown]
			if !known || s.Count < is.Refused || s.Count-s.Error > is.Refused || s.Blocked != is.Blocked {
				t.Errorf("%s: %s has %d denials with an error of %d, %d of them by a block; the books have %+v", r.Name, s.Shown, s.Count, s.Error, s.Blocked, is)
			}
		}
	}
	// Subjects that an older limit denied are compared with that limit.
	for i, s := range v.Rule("login").Refusals[telemetry.Hour].Items {
		if attacked := slices.Contains(incident.Attacked, s.Shown); attacked != (i < len(incident.Attacked)) || attacked && s.Limit.Count != incident.LoginLimit {
			t.Errorf("number %d of login is %s, denied by %v", i, s.Shown, s.Limit)
		}
	}
	open, _ := v.Rule("per-address").Unblocked(telemetry.Minute)
	if len(open.Items) == 0 || open.Items[0].Shown != incident.Second {
		t.Errorf("the first subject without a block is %+v", open.Items)
	}
}

// holdTiers compares the customers of each tier in a view with the books.
func holdTiers(t *testing.T, h *incident.Hour, v *telemetry.View) {
	seen := map[string]bool{}
	for _, tier := range v.Tiers {
		seen[tier.Name] = true
		if tier.Name == "" {
			continue
		}
		truth := h.Books.Customers(tier.Name, 0, time.Hour)
		var refused, all uint64
		for _, one := range truth {
			all += one.Refused
			if one.Refused > 0 {
				refused++
			}
		}
		top := &tier.Refusals[telemetry.Hour]
		if top.Total != all || math.Abs(float64(tier.Refused[telemetry.Hour])-float64(refused)) > 0.1*float64(refused) {
			t.Errorf("%s: the view has %d of %d denials, and %d of %d denied customers", tier.Name, top.Total, all, tier.Refused[telemetry.Hour], refused)
		}
		for _, s := range top.Items {
			key := strings.TrimPrefix(s.Key, "api/")
			is, known := truth[key]
			if !known || s.Count < is.Refused || s.Count-s.Error > is.Refused {
				t.Errorf("%s: %s has %d denials with an error of %d; the books have %+v", tier.Name, key, s.Count, s.Error, is)
			}
		}
		if tier.Name != "pro" {
			continue
		}
		for i := range top.Items[:len(incident.Hurt)] {
			s := &top.Items[i]
			key := strings.TrimPrefix(s.Key, "api/")
			asked := slices.IndexFunc(tier.Traffic[telemetry.Hour].Items, func(a telemetry.Subject) bool { return a.Key == s.Key })
			if incident.Hurt[key] == 0 || asked < 0 {
				t.Errorf("the customers with the most denials are %v", top.Items)
				continue
			}
			share := float64(s.Count) / float64(tier.Traffic[telemetry.Hour].Items[asked].Count)
			if is := truth[key].Share(); math.Abs(share-is) > 0.02 || is < 0.15 {
				t.Errorf("%s: the view has a fraction of %v denied requests, and the books have %v", key, share, is)
			}
			if found, known := h.Fleet.Find(s.ID); !known || found != s.Key {
				t.Errorf("Find does not find the customer %s: %q", s.Key, found)
			}
		}
	}
	if !seen["pro"] || !seen["free"] || !seen["enterprise"] {
		t.Errorf("the view has the tiers %v", seen)
	}
}
