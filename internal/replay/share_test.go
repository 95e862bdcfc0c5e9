package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/replay/accesslog"
	"github.com/sluicehq/sluice/internal/replay/logtest"
	"github.com/sluicehq/sluice/internal/seed"
)

// tenantHit is a request of a tenant, at a time in microseconds.
type tenantHit struct {
	at     int64
	tenant int
}

// tenantLog is the log of tenants who ask so many times a second each, from and to a second.
func tenantLog(t *testing.T, r *rand.Rand, seconds int, plans []string, rates func(tenant, second int) float64) (name string, hits []tenantHit) {
	for second := range seconds {
		for i := range plans {
			for n := rates(i, second); n > 0; n-- {
				if n >= 1 || r.Float64() < n {
					hits = append(hits, tenantHit{int64(second)*1e6 + r.Int64N(1e6), i})
				}
			}
		}
	}
	slices.SortFunc(hits, func(a, b tenantHit) int { return int(a.at - b.at) })
	var b strings.Builder
	for _, h := range hits {
		fmt.Fprintf(&b, `{"msg":"handled request","ts":%d.%06d,"request":{"remote_ip":"192.0.2.%d","method":"GET","uri":"/","headers":{"X-Tenant":["tenant-%d"],"X-Plan":["%s"]}},"status":200}`+"\n",
			1_795_169_732+h.at/1e6, h.at%1e6, h.tenant%3, h.tenant, plans[h.tenant])
	}
	return logtest.Write(t, b.String()), hits
}

// divided returns what each gets of a limit by the definition of max-min fairness: there is a level so that
// each gets what it asks for, or the level times its weight, and together they get the limit or all.
func divided(limit float64, asked, weights []float64) []float64 {
	at := func(level float64) (got []float64, total float64) {
		for i := range asked {
			got = append(got, min(asked[i], level*weights[i]))
			total += got[i]
		}
		return got, total
	}
	low, high := 0.0, limit
	for range 60 {
		middle := (low + high) / 2
		if _, total := at(middle); total <= limit {
			low = middle
		} else {
			high = middle
		}
	}
	got, _ := at(low)
	return got
}

// A log is shared out by its own clock: what passes is what a bucket lets pass at most, and each has its
// part of every few seconds by the definition.
func TestShareOfALog(t *testing.T) {
	t.Parallel()
	const limit, seconds = 100, 40
	plans := []string{"free", "free", "pro", "free", "pro"}
	weights := []float64{1, 1, 4, 1, 4}
	// Two ask for more than there is, one begins late and ends early, and two ask for less than their part.
	rates := func(tenant, second int) float64 {
		switch tenant {
		case 0:
			return 300
		case 1:
			return 5
		case 2:
			return 200
		case 3:
			return 4
		}
		if second < 10 || second >= 30 {
			return 0
		}
		return 150
	}
	r := rand.New(rand.NewPCG(seed.Of(t), 0))
	name, hits := tenantLog(t, r, seconds, plans, rates)
	const doc = `
tiers: {from: header:X-Plan}
rules: [{name: api, share: {of: 100/second, by: [header:X-Tenant], weights: {pro: 4}}}]`
	c := Config{Files: []string{name}, Document: decode(t, doc)}
	c.Feed.Format = format(t, "caddy", accesslog.Options{})
	c.Workers = 1
	report, refused := replayed(t, c)
	c.Workers = 4
	if _, also := replayed(t, c); firstDifference(refused, also) >= 0 {
		t.Errorf("with four workers request %d differs", firstDifference(refused, also))
	}
	// Where each client has a limit to share, what tenants ask for is known by all workers.
	c.Document = decode(t, `rules: [{name: api, key: [client_ip], share: {of: 60/second, by: [header:X-Tenant]}}]`)
	_, four := replayed(t, c)
	c.Workers = 1
	if _, one := replayed(t, c); firstDifference(one, four) >= 0 {
		t.Errorf("by clients, with four workers request %d differs", firstDifference(one, four))
	}
	if len(report.NotJudged) > 0 || report.Requests != int64(len(hits)) {
		t.Fatalf("%d of %d requests, not judged: %v", report.Requests, len(hits), report.NotJudged)
	}
	passed := make([][]float64, len(plans)) // by second
	for i := range passed {
		passed[i] = make([]float64, seconds)
	}
	level, last := int64(0), int64(0) // of a bucket of 100 that drains 100 a second, in millionths
	for i, h := range hits {
		level = max(0, level-(h.at-last)*limit)
		last = h.at
		if refused[i] {
			continue
		}
		if level += 1e6; level > limit*1e6 {
			t.Fatalf("request %d at %d µs passes above the limit", i, h.at)
		}
		passed[h.tenant][h.at/1e6]++
	}
	for from := range seconds - 5 {
		steady := true
		asked, got, total := make([]float64, len(plans)), make([]float64, len(plans)), 0.0
		for i := range plans {
			for s := from; s < from+5; s++ {
				steady = steady && rates(i, s) == rates(i, max(0, from-2)) && from >= 2 // shares have settled
				asked[i] += rates(i, s)
				got[i] += passed[i][s]
				total += passed[i][s]
			}
		}
		if !steady {
			continue
		}
		for i, want := range divided(5*limit, asked, weights) {
			if got[i] < 0.95*want-2 || got[i] > 1.05*want+5 {
				t.Errorf("in seconds %d to %d tenant %d got %v, and has %.1f by definition", from, from+5, i, got[i], want)
			}
		}
		if total < 0.97*5*limit {
			t.Errorf("in seconds %d to %d %v passed", from, from+5, total)
		}
	}
	rule := report.Rules["api"]
	if rule.Subjects != int64(len(plans)) || !slices.Equal(rule.Key, []string{"header:X-Tenant"}) {
		t.Errorf("%d subjects by %v", rule.Subjects, rule.Key)
	}
	for _, s := range report.Top {
		if !strings.HasPrefix(s.Key, "tenant-") {
			t.Errorf("a subject is called %q", s.Key)
		}
	}
}
