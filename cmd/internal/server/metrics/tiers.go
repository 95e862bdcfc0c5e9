package metrics

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/policy"
)

// tiers counts the requests of tiers, whichever rules decide about them.
type tiers struct {
	mu  sync.Mutex // for adding one
	all atomic.Pointer[map[string]*tier]
}

func newTiers() *tiers {
	t := new(tiers)
	t.all.Store(&map[string]*tier{})
	return t
}

// tier counts the requests of one tier.
type tier struct{ decisions, refused, near atomic.Uint64 }

const (
	// maxTiers bounds the series: over time, policies may have any number of tiers.
	maxTiers   = 100
	otherTiers = "*other" // no tier has this name; also for tiers that the policy does not have
)

var (
	tierDecisions = prometheus.NewDesc("sluice_tier_decisions_total", "Requests of a tier, without those that a block refuses.", []string{"tier"}, nil)
	tierRefused   = prometheus.NewDesc("sluice_tier_refused_total", "Requests of a tier that were refused, by whichever rule.", []string{"tier"}, nil)
	tierNear      = prometheus.NewDesc("sluice_tier_near_limit_total", "Requests of a tier that passed with less than a fifth of a limit left.", []string{"tier"}, nil)
)

func (t *tiers) collect(send sender) {
	for name, c := range *t.all.Load() {
		name = strings.ToValidUTF8(name, "\uFFFD")
		send.counter(tierDecisions, c.decisions.Load(), name)
		send.counter(tierRefused, c.refused.Load(), name)
		send.counter(tierNear, c.near.Load(), name)
	}
}

// observe is called with each decision.
func (t *tiers) observe(_ context.Context, o *policy.Observation) {
	d := &o.Decision
	if o.Request.Mode != policy.Charge || d.Repeated || d.Blocked != "" {
		return
	}
	name, _, known := o.Tier()
	if !known || name == "" {
		return
	}
	if !o.Policy().HasTier(name) { // a client may have invented it
		name = otherTiers
	}
	c := t.of(name)
	c.decisions.Add(1)
	switch {
	case !d.Allowed && d.Missing == "":
		c.refused.Add(1)
	case d.Allowed && slices.ContainsFunc(d.Results, nearLimit):
		c.near.Add(1)
	}
}

// nearLimit reports whether a limit that is enforced has less than a fifth left.
func nearLimit(r policy.Result) bool {
	return r.Plan != nil && !r.Shadow && !r.Origin.Degraded() && r.Remaining*5 < r.Plan.Capacity
}

// of returns the counters of a tier.
func (t *tiers) of(name string) *tier {
	all := *t.all.Load()
	if c := all[name]; c != nil {
		return c
	}
	if c := all[otherTiers]; c != nil { // all series are used: needs no lock
		return c
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	all = *t.all.Load()
	if len(all) >= maxTiers {
		name = otherTiers
	}
	if c := all[name]; c != nil {
		return c
	}
	all = maps.Clone(all)
	all[name] = new(tier)
	t.all.Store(&all)
	return all[name]
}
