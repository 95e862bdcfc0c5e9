//go:build long

package e2e

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const (
	shareRate   = 60 // a second; the burst is the same
	sharePolicy = `version: 1
tiers: {from: header:X-Plan}
rules:
  - name: api
    share: {of: 60/second, by: [header:X-Tenant], weights: {free: 1, pro: 3, big: 10}}
    on_error: deny
  - {name: other, key: [client_ip], limit: 1000000/day}
`
)

// Two gateways with one store divide a limit among tenants by weight, whatever the tenants send and however the clock
// of the store jumps. The tests TestShare… of policy check the allocation of each tenant in virtual time. This test
// checks only results that hold on a busy machine, too, as long as the tenants send more than the limit allows: the
// total, and that tenants of weight 10 get at least twice as much as those of weight 1.
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
			if name == "cluster" {
				fleet[0].Await("the rules of more than one slot are logged", func(r record) bool {
					return strings.HasPrefix(r.Msg, "the cluster charges some rules one by one") && strings.Contains(r.Problem, "other")
				})
			}
			share(t, fleet, 2*time.Second) // instances exchange the demands
			bursts := 1
			if test.jump != 0 {
				redis.SetClock(test.jump)
				share(t, fleet, 2*time.Second)
				bursts++ // units that were taken before may be forgotten
			}
			testkit.Await(t, "the tenants have sent twice as many requests as passed", func() bool {
				passed, refused, took := share(t, fleet, 5*time.Second)
				t.Logf("%d passed by weight and %d were denied in %v", passed, refused, took)
				total := passed[0] + passed[1] + passed[2]
				if most := shareRate * (float64(bursts) + took.Seconds()); float64(total) > most {
					t.Errorf("%d passed in %v, want at most %.0f", total, took, most)
				}
				if refused < total {
					bursts = 1
					return false
				}
				if passed[0] > passed[1] || passed[1] > passed[2] || 2*passed[0] > passed[2] {
					t.Errorf("by weight, %d passed", passed)
				}
				return true
			})
		})
	}
}

// share sends the requests of nine tenants, three of each weight, as fast as they are answered. It returns how many
// requests of each weight have passed, the lowest weight first, and how many requests were denied.
func share(t *testing.T, fleet []*gateway, lasts time.Duration) (passed [3]int64, refused int64, took time.Duration) {
	t.Helper()
	client, start := newClient(t), time.Now()
	var counts [3]atomic.Int64
	var others atomic.Int64
	var work sync.WaitGroup
	for i := range 9 {
		tier, tenant := []string{"free", "pro", "big"}[i/3], fmt.Sprint("tenant-", i)
		work.Go(func() {
			for n := 0; time.Since(start) < lasts; n++ {
				if ask(t, client, fleet[n%len(fleet)].URL+"/health", "X-Tenant", tenant, "X-Plan", tier) == 200 {
					counts[i/3].Add(1)
				} else {
					others.Add(1)
				}
			}
		})
	}
	work.Wait()
	for i := range counts {
		passed[i] = counts[i].Load()
	}
	return passed, others.Load(), time.Since(start)
}
