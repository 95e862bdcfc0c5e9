package metrics

import (
	"context"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// settlements counts the units that responses report but that are not charged. It logs the first such response of
// each rule.
type settlements struct {
	engine *policy.Engine
	log    *slog.Logger

	mu    sync.Mutex
	units map[string]uint64 // by rule
}

var cutUnits = prometheus.NewDesc("sluice_settle_cut_units_total",
	"Units (micro-USD for limits in USD) that responses reported but that were not charged, because they exceed cost.max of the rule, or the largest debt that a key can have. sluice validate prints this debt.", []string{"rule"}, nil)

func newSettlements(e *policy.Engine, log *slog.Logger) *settlements {
	c := &settlements{engine: e, log: log, units: map[string]uint64{}}
	e.ObserveSettled(c.observe)
	return c
}

func (c *settlements) observe(_ context.Context, s *policy.Settlement) {
	if s.Cut <= 0 {
		return
	}
	c.mu.Lock()
	n, known := c.units[s.Rule]
	c.units[s.Rule] = n + uint64(s.Limit.Value(s.Cut))
	c.mu.Unlock()
	if !known {
		c.log.Warn("a response reported a cost that is not charged in full, because it exceeds the rule's max or the largest debt of a key: correct the response, or raise max. Further responses of this rule are only counted, in sluice_settle_cut_units_total",
			"rule", s.Rule, "limit", s.Limit.String(), "charged", logged(&s.Limit, s.Cost), "not_charged", logged(&s.Limit, s.Cut))
	}
}

// logged returns units of a limit for the log, as a number or as an amount in USD.
func logged(l *sluice.Limit, units int64) any {
	if l.Money == 0 {
		return units
	}
	return l.Amount(units)
}

// collect sends a series for each rule that reads costs from responses, even before the first response.
func (c *settlements) collect(send sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for rule, n := range c.units {
		send.counter(cutUnits, n, rule)
	}
	last := ""
	for _, d := range c.engine.Policy().Debts() {
		if _, counted := c.units[d.Rule]; d.Rule == last || counted {
			continue
		}
		last = d.Rule
		send.counter(cutUnits, 0, d.Rule)
	}
}
