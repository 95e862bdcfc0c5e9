package replay

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
	"github.com/sluicehq/sluice/policy"
)

// A replay divides a shared limit by the clock of the log, with any number of workers. No more requests pass than
// through a bucket, a tenant with few requests gets all of them, and the rest is divided by weight.
func TestShareOfALog(t *testing.T) {
	t.Parallel()
	const limit, seconds = 100, 40
	// The limit is 100 a second. Tenant 0 sends 300 a second, and tenant 2, with a weight of 4, sends 200. Tenants 1
	// and 3 send few requests. Tenant 4, with a weight of 4, sends 200 a second in the middle.
	tenants := []struct {
		plan                    string
		asks                    int
		calm, crowded           int // per second by max-min fairness: first 5 and 4, then the rest as 1:4, or as 1:4:4
		calmPassed, crowdPassed int
	}{
		{plan: "free", asks: 300, calm: 18, crowded: 10}, {plan: "free", asks: 5, calm: 5, crowded: 5},
		{plan: "pro", asks: 200, calm: 73, crowded: 40}, {plan: "free", asks: 4, calm: 4, crowded: 4},
		{plan: "pro", asks: 200, calm: 0, crowded: 40},
	}
	var log strings.Builder
	var at []int64 // microseconds of each request
	var of []int   // the tenant of each request
	for tick := range int64(seconds * 600) {
		for i, tenant := range tenants {
			absent := i == 4 && (tick < 10*600 || tick >= 30*600)
			if absent || tick*int64(tenant.asks)/600 == (tick+1)*int64(tenant.asks)/600 {
				continue
			}
			us := tick*1_000_000/600 + int64(i)
			at, of = append(at, us), append(of, i)
			fmt.Fprintf(&log, `{"msg":"handled request","ts":%d.%06d,"request":{"remote_ip":"192.0.2.%d","method":"GET","uri":"/","headers":{"X-Tenant":["tenant-%d"],"X-Plan":["%s"]}},"status":200}`+"\n",
				1_795_169_732+us/1e6, us%1e6, i%3, i, tenant.plan)
		}
	}
	c := Config{Files: []string{logtest.Write(t, log.String())}, Workers: 1, Document: decode(t, `
tiers: {from: header:X-Plan}
rules: [{name: api, share: {of: 100/second, by: [header:X-Tenant], weights: {pro: 4}}}]`)}
	c.Feed.Format = format(t, "caddy", accesslog.Options{})
	report, refused := replayed(t, c)
	if len(report.NotJudged) > 0 || report.Requests != int64(len(at)) || report.Rules["api"].Subjects != int64(len(tenants)) {
		t.Fatalf("%d of %d requests, not judged: %v, %+v", report.Requests, len(at), report.NotJudged, report.Rules["api"])
	}
	for _, s := range report.Top {
		if !strings.HasPrefix(s.Key, "tenant-") {
			t.Errorf("a subject has the key %q", s.Key)
		}
	}
	level, last := int64(0), int64(0) // the level of a bucket of 100 that drains 100 a second, in millionths
	for i, us := range at {
		level = max(0, level-(us-last)*limit)
		last = us
		if refused[i] {
			continue
		}
		if level += 1e6; level > limit*1e6 {
			t.Fatalf("request %d at %d µs passes above the limit", i, us)
		}
		switch second := us / 1e6; { // allocations settle within five seconds
		case second >= 5 && second < 10 || second >= 35:
			tenants[of[i]].calmPassed++
		case second >= 15 && second < 30:
			tenants[of[i]].crowdPassed++
		}
	}
	for i, tenant := range tenants {
		for _, c := range []struct{ passed, want int }{{tenant.calmPassed, 10 * tenant.calm}, {tenant.crowdPassed, 15 * tenant.crowded}} {
			if 100*c.passed < 93*c.want || 100*c.passed > 107*c.want {
				t.Errorf("tenant %d: %d requests pass, want about %d", i, c.passed, c.want)
			}
		}
	}
	// If each client has a limit of its own to share, all workers know the demand of the tenants.
	byClient := decode(t, `rules: [{name: api, key: [client_ip], share: {of: 60/second, by: [header:X-Tenant]}}]`)
	for _, doc := range []policy.Document{c.Document, byClient} {
		c.Document, c.Workers = doc, 1
		_, one := replayed(t, c)
		c.Workers = 4
		if _, four := replayed(t, c); firstDifference(one, four) >= 0 {
			t.Errorf("with four workers request %d differs", firstDifference(one, four))
		}
	}
}
