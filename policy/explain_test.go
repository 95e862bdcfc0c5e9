package policy

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
)

func TestExplain(t *testing.T) {
	e := engine(t, `
tiers: {from: header:X-Plan}
rules:
  - {name: health, match: GET /health, exempt: true}
  - {name: all, limit: 3/day}
  - {name: user, key: [header:X-User], missing: skip, limit: 10/day, tiers: {pro: 20/day}}
  - {name: queue, match: /jobs, limit: 1/day burst 3, algorithm: leaky_bucket}
  - {name: host, hosts: [other.test], limit: 1/day}
  - {name: header, headers: {X-Beta: "1"}, limit: 1/day}
  - {name: strict, match: /strict, key: [header:X-Key], missing: refuse, limit: 1/day}
  - {name: log, match: /log, limit: 2/day, algorithm: sliding_window_log}`)
	texts := func(trace Trace) (all []string) {
		for _, r := range trace.Rules {
			text := fmt.Sprintf("%s %v %s", r.Rule, r.Applies, r.Why)
			for _, result := range r.Results {
				text += fmt.Sprintf(" | %s %s allowed=%v remaining=%d", r.Key, result.From, result.Allowed, result.Remaining)
			}
			all = append(all, text)
		}
		return all
	}
	check := func(r *Request, want ...string) {
		t.Helper()
		for range 2 { // nothing is taken
			got := texts(e.Explain(t.Context(), r))
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					t.Fatalf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		}
	}
	none := "no pattern matches the method, host and path"
	rest := []string{
		`host false host "example.com" is not one of its hosts`,
		"header false the header X-Beta is missing or has another value",
		"strict false " + none, "log false " + none,
	}
	check(get("/health"), "health true exempts the request",
		`all false rule "health" exempts the request`, `user false rule "health" exempts the request`,
		`queue false rule "health" exempts the request`, `host false rule "health" exempts the request`,
		`header false rule "health" exempts the request`, `strict false rule "health" exempts the request`,
		`log false rule "health" exempts the request`)
	check(get("/health;a"), append([]string{
		"health false does not exempt: the path can be read in more than one way, and not every way matches",
		"all true every request | all/ rule allowed=true remaining=3",
		"user false skipped: the request lacks header:X-User", "queue false " + none}, rest...)...)
	check(get("/jobs", "X-User: bob", "X-Plan: pro"), append([]string{
		"health false " + none,
		"all true every request | all/ rule allowed=true remaining=3",
		"user true every request | user/bob tier:pro allowed=true remaining=20",
		`queue true match "/jobs" | queue/ rule allowed=true remaining=3`}, rest...)...)

	if d := e.Explain(t.Context(), get("/strict")).Decision; d.Missing != "header:X-Key" || d.Allowed {
		t.Errorf("got %+v", d)
	}
	for _, path := range []string{"/jobs", "/log", "/jobs", "/log", "/x"} {
		would := e.Explain(t.Context(), get(path)).Decision
		is := e.Decide(t.Context(), get(path))
		if would.Allowed != is.Allowed || would.Delay.Round(time.Second) != is.Delay.Round(time.Second) ||
			would.RetryAfter.Round(time.Second) != is.RetryAfter.Round(time.Second) && !is.Allowed {
			t.Errorf("%s: explained as %+v, decided %+v", path, would, is)
		}
	}
}

// A malformed request that other rules refuse is explained as it is decided.
func TestExplainMalformed(t *testing.T) {
	e := engine(t, `
rules:
  - {name: typed, key: [body:user], limit: 9/day}
  - {name: ip, key: [client_ip], limit: 2/day}
  - {name: needs, match: /needs, key: ["header:X-Key"], missing: refuse, limit: 9/day}`)
	for _, path := range []string{"/needs", "/%u0061", "/needs", "/needs", "/%u0061"} {
		would, is := e.Explain(t.Context(), get(path)), e.Decide(t.Context(), get(path))
		if would.Decision.Missing != is.Missing || len(would.Decision.Results) != len(is.Results) || would.Decision.RetryAfter.Round(time.Second) != is.RetryAfter.Round(time.Second) {
			t.Errorf("%s: explained as %+v, decided %+v", path, would.Decision, is)
		}
		if ip := would.Rules[1]; is.Missing == "" && (ip.Key != "ip/192.0.2.1" || len(ip.Results) != 1 || ip.Results[0].Allowed || len(would.Rules[2].Results) > 0) {
			t.Errorf("%s: refused by %+v", path, would.Rules)
		}
	}
	if d := e.Decide(t.Context(), get("/needs")); d.Missing != "" || d.Allowed {
		t.Errorf("the rules that count malformed requests never refuse: %+v", d)
	}
}

// What Explain foretells is what Decide then says, for every algorithm.
func TestExplainForetells(t *testing.T) {
	for _, algorithm := range sluice.Algorithms() {
		synctest.Test(t, func(t *testing.T) {
			e := engine(t, fmt.Sprintf(`rules: [{name: a, limit: 10/minute, algorithm: %v, cost: {header: C, max: 20}}, {name: b, limit: 1000/minute}]`, algorithm))
			refused := 0
			for i := range 200 {
				r := get("/", fmt.Sprintf("C: %d", 1+i%4*i%11))
				would, is := e.Explain(t.Context(), r).Decision, e.Decide(t.Context(), r)
				if would.Allowed != is.Allowed || would.Delay != is.Delay {
					t.Fatalf("%v: step %d: explained as %+v, decided %+v", algorithm, i, would, is)
				}
				if !is.Allowed {
					refused++
					if algorithm < sluice.SlidingWindowLog && would.RetryAfter != is.RetryAfter || would.RetryAfter > is.RetryAfter {
						t.Fatalf("%v: step %d: explained as %v, decided %v", algorithm, i, would.RetryAfter, is.RetryAfter)
					}
				}
				time.Sleep(time.Duration(i*i%7) * time.Second)
			}
			if refused < 20 || refused > 180 {
				t.Errorf("%v: %d of 200 refused say little", algorithm, refused)
			}
		})
	}
}
