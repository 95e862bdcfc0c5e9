//go:build long

package e2e

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const (
	shareRate   = 60 // a second, and as much at once
	sharePolicy = `version: 1
tiers: {from: header:X-Plan}
rules:
  - name: api
    share: {of: 60/second, by: [header:X-Tenant], weights: {free: 1, pro: 3, big: 10}}
    on_error: deny
`
)

// Two gateways over one store share a limit among tenants by their weights, whatever they ask for and however the
// clock of the store jumps. How much each gets is held in virtual time (policy TestShares…); here only the total,
// and that a tenant of less weight never has more than one of more, count, since they hold on a busy machine, too.
func TestLongShares(t *testing.T) {
	redis := redistest.StartMovable(t)
	for name, test := range map[string]struct {
		url  string
		jump time.Duration
	}{
		"Redis":         {redis.URL(), 0},
		"an hour ahead": {redis.URL(), time.Hour},
		"an hour back":  {redis.URL(), -time.Hour},
		"cluster":       {redistest.SharedCluster(t).URL(), 0},
	} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"--policy", testkit.File(t, "policy.yaml", sharePolicy), "--upstream", "sample", "--store", test.url}, patientStore...)
			fleet := []*gateway{serve(t, args...), serve(t, args...)}
			share(t, fleet, 2*time.Second) // demands become known
			bursts := 1
			if test.jump != 0 {
				redis.SetClock(test.jump)
				share(t, fleet, 2*time.Second)
				bursts++ // what was taken before may count for nothing
			}
			passed, took := share(t, fleet, 5*time.Second)
			t.Logf("%d passed in %v", passed, took)
			total := 0
			for _, n := range passed {
				total += n
			}
			if most := shareRate * (float64(bursts) + took.Seconds()); float64(total) > most {
				t.Errorf("%d passed in %v, and %.0f may", total, took, most)
			}
			for weight := range 2 {
				if least, more := slices.Min(passed[3*weight+3:]), slices.Max(passed[3*weight:3*weight+3]); more > least+shareRate/6 {
					t.Errorf("tenants of less weight got %d, of more %d", more, least)
				}
			}
		})
	}
}

// share has nine tenants, three of each weight and the lightest first, ask as often as they are answered, and
// returns how many requests of each have passed.
func share(t *testing.T, fleet []*gateway, lasts time.Duration) (passed []int, took time.Duration) {
	t.Helper()
	client, start := newClient(t), time.Now()
	var counts [9]atomic.Int64
	var work sync.WaitGroup
	for i := range counts {
		tier, tenant := []string{"free", "pro", "big"}[i/3], fmt.Sprint("tenant-", i)
		work.Go(func() {
			for n := 0; time.Since(start) < lasts; n++ {
				if ask(t, client, fleet[n%len(fleet)].URL+"/health", "X-Tenant", tenant, "X-Plan", tier) == 200 {
					counts[i].Add(1)
				}
			}
		})
	}
	work.Wait()
	for i := range counts {
		passed = append(passed, int(counts[i].Load()))
	}
	return passed, time.Since(start)
}
