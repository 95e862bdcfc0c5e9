package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// lastUses is a model of a rule with distinct. For each key, it has the values of the last period, with the times of
// their last use.
type lastUses map[string]map[string]time.Time

// use uses a value, unless the key already has most other values. It returns the number of new values that still fit,
// and the wait of a new value.
func (u lastUses) use(key, value string, most int, take bool) (allowed bool, left int64, wait time.Duration) {
	const period = time.Hour
	now, all := time.Now(), u[key]
	var ends []time.Duration
	for v, last := range all {
		if now.Sub(last) >= period {
			delete(all, v)
		}
	}
	_, known := all[value]
	if allowed = known || len(all) < most; allowed && take {
		if all == nil {
			all = make(map[string]time.Time)
			u[key] = all
		}
		all[value] = now
	}
	for _, last := range all {
		ends = append(ends, last.Add(period).Sub(now))
	}
	slices.Sort(ends)
	if len(ends) >= most {
		wait = ends[len(ends)-most]
	}
	return allowed, int64(max(0, most-len(ends))), wait
}

// Random histories with two tiers are decided as by the model, and Explain predicts the decisions.
func TestDistinctOracle(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng, uses := rand.New(rand.NewPCG(seed, 28)), lastUses{}
			e := NewEngine(memory.New(), parse(t, `
tiers: {from: "header:X-Plan"}
rules:
  - {name: account, key: [api_key], distinct: {of: client_ip, limit: 3/hour}, tiers: {pro: 5/hour}}`))
			for step := range 400 {
				time.Sleep(time.Duration(rng.Int64N(int64(20*time.Minute)) * rng.Int64N(2)).Truncate(time.Microsecond))
				key, n, plan, most := fmt.Sprint("k", rng.IntN(2)), rng.IntN(7), "", 3
				if rng.IntN(3) == 0 {
					plan, most = "pro", 5
				}
				r := get("/")
				r.Peer = netip.AddrFrom4([4]byte{192, 0, 2, byte(n)})
				r.Header.Set("X-Api-Key", key)
				r.Header.Set("X-Plan", plan)
				r.Mode = []Mode{Charge, Charge, Charge, Peek, GiveBack}[rng.IntN(5)]
				explained := e.Explain(t.Context(), r)
				allowed, left, wait := uses.use(key, r.Peer.String(), most, false)
				allowed = allowed || r.Mode == GiveBack
				if d := explained.Decision; d.Allowed != allowed || d.Results[0].Remaining != left {
					t.Fatalf("seed %d, step %d: %+v is explained as %+v, want %v and %d left", seed, step, r, d, allowed, left)
				}
				if r.Mode == Charge {
					_, left, wait = uses.use(key, r.Peer.String(), most, true)
				}
				after, d := explained.After(), e.Decide(t.Context(), r)
				if d.Allowed != allowed || d.Results[0].Remaining != left || !d.Allowed && d.RetryAfter != wait {
					t.Fatalf("seed %d, step %d: %+v: %+v, want %v, %d left, and a wait of %v", seed, step, r, d, allowed, left, wait)
				}
				if r.Mode == Charge && (after.Allowed != d.Allowed || after.Results[0].Remaining != left) {
					t.Fatalf("seed %d, step %d: Explain predicted %+v, and the decision is %+v", seed, step, after, d)
				}
			}
		})
	}
}
