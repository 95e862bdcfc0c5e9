package telemetry_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

var at = time.Date(2026, 3, 4, 3, 0, 5, 0, time.UTC)

// view returns the view of an instance that has run for two days, with 1,000 allowed requests a second and no denials.
func view(rules ...telemetry.Rule) *telemetry.View {
	v := &telemetry.View{At: at, Since: at.Add(-48 * time.Hour), Rules: rules, Instances: []telemetry.Instance{
		{Name: "a", Self: true, Started: at.Add(-48 * time.Hour), Seen: at, Store: telemetry.Store{Kind: "redis", Shards: 1}},
	}}
	v.All = steady(0, 1000)
	return v
}

// steady returns a series with the given numbers of denials and other requests in each second.
func steady(refused, others uint64) telemetry.Series {
	s := telemetry.Series{Recent: make([]telemetry.Counts, telemetry.RecentSteps), Days: make([]telemetry.Counts, telemetry.LongSteps)}
	for i := range s.Recent {
		s.Recent[i][telemetry.Deny], s.Recent[i][telemetry.Allow] = 10*refused, 10*others
	}
	for i := range s.Days {
		s.Days[i][telemetry.Deny], s.Days[i][telemetry.Allow] = 300*refused, 300*others
	}
	return s
}

// since adds denials to s: the given number in each second, for the given time until now.
func since(s telemetry.Series, ago time.Duration, refused uint64) telemetry.Series {
	for i := range s.Recent {
		if begin := at.Truncate(telemetry.Step).Add(time.Duration(i-len(s.Recent)+1) * telemetry.Step); at.Sub(begin) <= ago {
			s.Recent[i][telemetry.Deny] += uint64(min(at.Sub(begin), telemetry.Step).Seconds()) * refused // half of the last step has passed
		}
	}
	for i := range s.Days {
		if begin := at.Truncate(telemetry.LongStep).Add(time.Duration(i-len(s.Days)+1) * telemetry.LongStep); at.Sub(begin) <= ago {
			s.Days[i][telemetry.Deny] += 300 * refused
		}
	}
	return s
}

func subject(key string, n uint64) telemetry.Subject {
	return telemetry.Subject{Key: key, Shown: key, Count: n}
}

// refuses returns a rule that has denied 38 requests a second since 02:47, and usually denies 0.2.
func refuses(subjects uint64, top telemetry.Top) telemetry.Rule {
	r := telemetry.Rule{Name: "login-address", Series: since(steady(0, 100), 13*time.Minute+5*time.Second, 38), Usual: 0.2}
	r.Refused[telemetry.Minute], r.Refusals[telemetry.Minute] = subjects, top
	return r
}

func crowd(n int, each uint64) (top telemetry.Top) {
	for range min(n, 100) {
		top.Items = append(top.Items, subject("10.0.0.1", each))
	}
	top.Total = uint64(n) * each
	return top
}

// unknown returns a rule that denies the given number of 1,000 requests a second. The usual rate of the rule is
// unknown.
func unknown(refused uint64) telemetry.Rule {
	return telemetry.Rule{Name: "new", Series: since(steady(0, 1000-refused), 48*time.Hour, refused), Usual: -1}
}

func TestHeadline(t *testing.T) {
	t.Parallel()
	attacker := telemetry.Top{Items: []telemetry.Subject{subject("203.0.113.7", 94), subject("b", 6)}, Total: 100}
	alone := telemetry.Top{Items: []telemetry.Subject{subject("203.0.113.7", 94)}, Total: 94}
	proxy := telemetry.Rule{Name: "per-client", Series: steady(0, 1000), Usual: 0}
	proxy.Traffic[telemetry.Hour] = telemetry.Top{Items: []telemetry.Subject{subject("per-client/10.0.0.9", 3_500_000)}, Total: 3_600_000}
	change := func(v *telemetry.View, f func(v *telemetry.View)) *telemetry.View { f(v); return v }
	stale := func(v *telemetry.View) {
		v.Instances = append(v.Instances, telemetry.Instance{Name: "b", Stale: true, Seen: at.Add(-40 * time.Second)})
	}
	quiet := telemetry.Rule{Name: "quiet", Series: steady(0, 10), Usual: 0}
	for name, c := range map[string]struct {
		v                 *telemetry.View
		level, text, rule string
		since             time.Time
		subject           string
	}{
		"nothing yet": {change(view(), func(v *telemetry.View) { v.All = telemetry.Series{} }),
			"unknown", "No request has come yet.", "", at.Add(-48 * time.Hour), ""},
		"more than yesterday": {change(view(quiet), func(v *telemetry.View) { v.All = since(steady(10, 990), time.Hour, 20) }),
			"good", "Nothing unusual. 2.9 % denied (yesterday at this hour 1 %).", "", time.Time{}, ""},
		"much, as ever": {change(view(telemetry.Rule{Name: "scrapers", Series: steady(400, 0), Usual: 400}), func(v *telemetry.View) { v.All = steady(420, 580) }),
			"unknown", "42 % of requests denied in the last minute, 42 % in the last 10 minutes, 42 % in the last hour. No rule denies more than usual now; scrapers denies the most.", "scrapers", time.Time{}, ""},
		"much, until a while ago": {change(view(quiet), func(v *telemetry.View) {
			v.All = steady(3, 997)
			for i := range 280 {
				v.All.Recent[i][telemetry.Deny] += 9000
			}
		}), "good", "Nothing unusual now. 0.3 % denied in the last 10 minutes, 41 % in the last hour (yesterday at this hour 0.3 %).", "", time.Time{}, ""},
		"the usual is unknown, and much": {change(view(unknown(380)), func(v *telemetry.View) { v.All = steady(380, 1000) }),
			"bad", "Since 2 Mar 03:05 UTC new denies 380/s.", "new", at.Add(-48 * time.Hour).Truncate(5 * time.Minute).Add(5 * time.Minute), ""},
		"one subject": {view(quiet, refuses(1, telemetry.Top{Items: alone.Items, Total: 100})),
			"bad", "Since 02:47 UTC login-address denies 38/s (usually 0.2). 1 subject has 94 % of the denials: 203.0.113.7. The rule denies no other subject.",
			"login-address", at.Truncate(time.Hour).Add(-13 * time.Minute), "203.0.113.7"},
		"one subject, and others": {view(refuses(60, attacker)),
			"bad", "Since 02:47 UTC login-address denies 38/s (usually 0.2). 1 subject has 94 % of the denials: 203.0.113.7. 59 others are denied, too.",
			"login-address", at.Truncate(time.Hour).Add(-13 * time.Minute), "203.0.113.7"},
		"a crowd": {view(refuses(1204, crowd(1204, 1))),
			"bad", "Since 02:47 UTC login-address denies 38/s (usually 0.2). Many subjects are denied (1,204), none with more than 0.1 % of the denials: the limit may be too low, or many clients came at once.",
			"login-address", at.Truncate(time.Hour).Add(-13 * time.Minute), ""},
		"always so": {view(telemetry.Rule{Name: "scrapers", Series: steady(38, 0), Usual: 38}),
			"good", "Nothing unusual. 0 of 3.6 M requests denied in the last hour, as yesterday at this hour.", "", time.Time{}, ""},
		"an instance is silent": {change(view(quiet), stale),
			"unknown", "No data for 40 s: instance b does not respond.", "", at.Add(-40 * time.Second), ""},
		"the store is unavailable": {change(view(refuses(1, alone)), func(v *telemetry.View) {
			v.Instances[0].Store.Unavailable, v.Instances[0].Store.Local = 1, 1204
			v.Events = []telemetry.Event{{At: at.Add(-20 * time.Minute), Kind: "circuit", Instance: "a"}}
		}), "bad", "Since 02:40 UTC the shared store is unavailable: each rule's on_error decides instead (1,204 decisions in the last minute).",
			"", at.Add(-20 * time.Minute), ""},
		"a shard is unavailable for one of two": {change(view(), func(v *telemetry.View) {
			v.Instances = append(v.Instances, telemetry.Instance{Name: "b", Store: telemetry.Store{Shards: 3, Unavailable: 1, Local: 1}})
		}), "bad", "1 of 3 shards of the shared store are unavailable for 1 of 2 instances: each rule's on_error decides instead (1 decision in the last minute).",
			"", time.Time{}, ""},
		"three instances are silent": {change(view(quiet), func(v *telemetry.View) { stale(v); stale(v); stale(v) }),
			"unknown", "No data for 40 s: instance b and 2 others do not respond.", "", at.Add(-40 * time.Second), ""},
		"everybody is one": {view(proxy),
			"unknown", "Nearly all requests come from 10.0.0.9. If it is your load balancer, add it to trusted_proxies to distinguish clients.",
			"per-client", time.Time{}, "per-client/10.0.0.9"},
		"a reload failed": {change(view(quiet), func(v *telemetry.View) {
			v.Events = []telemetry.Event{{At: at.Add(-5 * time.Minute), Kind: "refused", Instance: "a", Text: "api.yaml:3: the rule has no limit"}, {At: at.Add(-time.Hour), Kind: "reload", Instance: "a"}}
		}), "bad", "At 02:55 UTC an invalid policy was rejected, and the older one stays in force: api.yaml:3: the rule has no limit.", "", at.Add(-5 * time.Minute), ""},
		"a reload failed, and another did not": {change(view(quiet), func(v *telemetry.View) {
			v.Events = []telemetry.Event{{At: at, Kind: "reload", Instance: "a"}, {At: at.Add(-time.Hour), Kind: "refused", Instance: "a"}}
		}), "good", "Nothing unusual. 0 of 3.6 M requests denied in the last hour, as yesterday at this hour.", "", time.Time{}, ""},
	} {
		h := c.v.Headline()
		who := ""
		if h.Subject != nil {
			who = h.Subject.Key
		}
		if h.Level != c.level || h.Text != c.text || h.Rule != c.rule || !h.Since.Equal(c.since) || who != c.subject {
			t.Errorf("%s: %s\n%q\nabout %q, %q since %v; want %s\n%q\nabout %q, %q since %v", name, h.Level, h.Text, h.Rule, who, h.Since, c.level, c.text, c.rule, c.subject, c.since)
		}
	}
	known := view(refuses(1, alone))
	known.All = since(steady(3, 60), 13*time.Minute+5*time.Second, 38)
	if h := known.HeadlineExcept(func(string) bool { return true }); h.Level != "unknown" || h.Rule != "" || !strings.HasPrefix(h.Text, "Nothing else is unusual. 39 % of requests denied in the last minute, ") || strings.Contains(h.Text, "No rule") {
		t.Errorf("with its alert silenced: %s, %s", h.Level, h.Text)
	}
	blocked := refuses(2, telemetry.Top{Items: []telemetry.Subject{subject("b", 60), subject("203.0.113.7", 40)}, Total: 100})
	blocked.Refusals[telemetry.Minute].Items[0].Blocked = 60
	if text := view(blocked).Headline().Text; !strings.HasSuffix(text, "203.0.113.7. The rule denies no other subject that is not blocked.") {
		t.Errorf("with a blocked subject: %s", text)
	}
	evil := refuses(1, telemetry.Top{Items: []telemetry.Subject{subject("x\x1b[2J\n\u202e"+strings.Repeat("y", 500), 94)}, Total: 100})
	if text := view(evil).Headline().Text; strings.ContainsAny(text, "\x1b\n\u202e") || len(text) > 400 {
		t.Errorf("the text with a hostile key is %q", text)
	}
}

// In the first minutes of a process, when the usual rate is unknown, the headline uses the counts so far.
func TestHeadlineFirstMinutes(t *testing.T) {
	t.Parallel()
	r := telemetry.Rule{Name: "a", Usual: -1, Series: telemetry.Series{Recent: []telemetry.Counts{{0, 0, 0, 20}, {0, 0, 0, 40}}}}
	v := &telemetry.View{At: at, Since: at.Add(-15 * time.Second), All: telemetry.Series{Days: r.Recent}, Rules: []telemetry.Rule{r}}
	if h := v.Headline(); h.Text != "Since 02:59 UTC a denies 4/s." || !h.Since.Equal(v.Since) {
		t.Errorf("%q since %v", h.Text, h.Since)
	}
}

// The text of an alert distinguishes subjects with the same shortened key.
func TestHeadlineTellsShortKeysApart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "a", Key: []string{"api_key"}, Limit: "1/day"}))
		f := running(t, &telemetry.Fleet{Recorder: telemetry.Watch(e, telemetry.Config{Subjects: true})})
		one, err := e.Subject("a", map[string]string{"api_key": "sk_live_0123456789"})
		if err != nil {
			t.Fatal(err)
		}
		for range 200 {
			e.Decide(t.Context(), &policy.Request{Subject: one})
			time.Sleep(time.Second / 10)
		}
		alerts := f.View().Alerts(1)
		if want := one.Shown() + " #" + one.Pseudonym()[:6] + "."; len(alerts) != 1 || !strings.Contains(want, "…") || !strings.Contains(alerts[0].Text, want) {
			t.Errorf("%+v, want %q", alerts, want)
		}
	})
}

// As soon as the whole policy is in shadow mode, the headline does not report that a rule denies, however many denials
// the last minute has.
func TestHeadlineOfShadow(t *testing.T) {
	t.Parallel()
	for passed, want := range map[int]string{
		0:    "100 % of requests denied in the last minute, 100 % in the last 10 minutes, 100 % in the last hour. Nothing is denied now: the whole policy is in shadow mode.",
		9900: "Nothing unusual. 1 % denied in the last hour.",
	} {
		synctest.Test(t, func(t *testing.T) {
			e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "a", Match: []string{"/a"}, Limit: "1/day"}))
			f := running(t, &telemetry.Fleet{Recorder: telemetry.Watch(e, telemetry.Config{})})
			ask := func(path string, n int) {
				for range n {
					e.Decide(t.Context(), &policy.Request{Path: path})
				}
			}
			ask("/a", 1)
			time.Sleep(2 * time.Hour)
			ask("/b", passed)
			for range 100 {
				ask("/a", 1)
				time.Sleep(time.Second / 10)
			}
			if h := f.View().Headline(); passed == 0 && !strings.Contains(h.Text, "a denies ") {
				t.Errorf("premise: %s", h.Text)
			}
			e.ShadowAll()
			v := f.View() // the cached view of a moment ago
			if h := v.Headline(); h.Text != want || len(v.Alerts(9)) > 0 {
				t.Errorf("%d passed: %q, want %q", passed, h.Text, want)
			}
		})
	}
}

// Denials by a block count neither today nor yesterday.
func TestHeadlineAfterBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policy.NewEngine(memory.New(), compile(t, policy.Rule{Name: "a", Match: []string{"/a"}, Block: true}))
		f := running(t, &telemetry.Fleet{Recorder: telemetry.Watch(e, telemetry.Config{})})
		ask := func(path string, n int) {
			for range n {
				e.Decide(t.Context(), &policy.Request{Path: path})
				time.Sleep(time.Minute)
			}
		}
		time.Sleep(time.Hour)
		ask("/b", 30)
		ask("/a", 30)
		time.Sleep(23 * time.Hour)
		ask("/b", 30)
		if h, want := f.View().Headline(), "Nothing unusual. 0 of 30 requests denied in the last hour, as yesterday at this hour."; h.Text != want {
			t.Errorf("%q, want %q", h.Text, want)
		}
	})
}
