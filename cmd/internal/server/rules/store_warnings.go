package rules

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/redisstore"
)

// logCluster logs rules that a cluster charges one by one.
func (r *Rules) logCluster(p *policy.Policy) {
	if r.store.Cluster() {
		if _, apart := p.Cluster(); len(apart) > 0 {
			r.Log.Info("the cluster charges some rules one by one, so a request may be denied although it fits: see sluice validate --cluster", "rules", len(apart), "problem", apart[0].String())
		}
	}
}

// awaitStore calls logEvictable once the settings of the store are known. The store may be unavailable at the start.
func (r *Rules) awaitStore(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-r.store.Opened():
		r.logEvictable(r.engine.Policy())
	}
}

// logEvictable logs rules whose counters the store may evict to make room for new keys of other rules.
func (r *Rules) logEvictable(p *policy.Policy) {
	if r.store.EvictsByExpiry() {
		if short, long := evictable(p.Plans()); len(short) > 0 {
			r.Log.Warn("maxmemory-policy is volatile-ttl: when memory is full, a flood of new keys of one rule evicts counters of other rules that expire sooner; set it to noeviction, or give the rules periods of similar length",
				"flooded", long, "freed", strings.Join(short, ", "))
		}
	}
}

// evictable returns in long the rule whose new keys expire last. It returns in short the rules whose keys expire
// earlier than these new keys, even the keys that have used up their limit, which are kept longest. To make room for
// new keys of the rule in long, a store that evicts by expiry evicts keys of the rules in short.
func evictable(plans []policy.RulePlan) (short []string, long string) {
	var longest time.Duration
	for _, r := range plans {
		if first, _ := redisstore.Kept(r.Plan); first > longest {
			longest, long = first, r.Rule
		}
	}
	for _, r := range plans {
		if _, last := redisstore.Kept(r.Plan); last < longest && !slices.Contains(short, r.Rule) {
			short = append(short, r.Rule)
		}
	}
	return short, long
}
