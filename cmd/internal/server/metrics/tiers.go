package metrics

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/policy"
)

// tiers counts the requests of each tier, regardless of the rules that apply.
type tiers struct {
	decisions, refused, near *prometheus.CounterVec

	mu    sync.Mutex
	known map[string]bool // the tiers that have series
}

const (
	// maxTiers bounds the number of tiers with series of their own, because over time policies may have any number of
	// tiers.
	maxTiers   = 100
	otherTiers = "*other" // the label of tiers beyond maxTiers, and of tiers that the policy does not have; it is not a valid name of a tier
)

func newTiers() *tiers {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "sluice_tier_" + name, Help: help}, []string{"tier"})
	}
	return &tiers{
		decisions: counter("decisions_total", "Requests of a tier, except peeks, refunds, repeated requests and those that a block denied."),
		refused:   counter("refused_total", "Requests of a tier that a limit denied, including denials because of an overload or an outage. Blocked and malformed requests are not included."),
		near:      counter("near_limit_total", "Requests of a tier that were allowed with less than a fifth of a limit left."),
		known:     make(map[string]bool),
	}
}

// observe counts a decision.
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
	name = t.label(strings.ToValidUTF8(name, "\uFFFD"))
	t.decisions.WithLabelValues(name).Inc()
	switch {
	case !d.Allowed && d.Missing == "":
		t.refused.WithLabelValues(name).Inc()
	case d.Allowed && slices.ContainsFunc(d.Results, nearLimit):
		t.near.WithLabelValues(name).Inc()
	}
}

// nearLimit reports whether an enforced limit has less than a fifth left.
func nearLimit(r policy.Result) bool {
	return r.Plan != nil && !r.Shadow && !r.Origin.Degraded() && r.Remaining*5 < r.Plan.Capacity
}

// label returns the label of a tier. It adds the series of a new tier.
func (t *tiers) label(name string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.known[name] && len(t.known) >= maxTiers {
		name = otherTiers
	}
	if !t.known[name] {
		t.known[name] = true
		for _, c := range []*prometheus.CounterVec{t.decisions, t.refused, t.near} {
			c.WithLabelValues(name)
		}
	}
	return name
}
