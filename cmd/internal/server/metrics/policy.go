package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/cmd/internal/server/rules"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

var (
	policyInfo    = prometheus.NewDesc("sluice_policy_info", "Always 1; the fingerprint identifies the policy in force. Overrides and subjects do not change it.", []string{"fingerprint"}, nil)
	policyRules   = prometheus.NewDesc("sluice_policy_rules", "Rules of the policy in force.", nil, nil)
	policyReloads = prometheus.NewDesc("sluice_policy_reloads_total", "Policies read from a file or a database, by result: success (in force) or refused (invalid).", []string{"result"}, nil)
	policyLast    = prometheus.NewDesc("sluice_policy_last_reload_success_timestamp_seconds", "Time at which the policy in force was loaded.", nil, nil)
	policyStays   = prometheus.NewDesc("sluice_policy_refused", "1 while the policy of the file or the database is invalid and an older one stays in force: see the log.", nil, nil)
)

// policyMetrics returns metrics about the policy in force, and about the policies that were read and applied or
// refused.
func policyMetrics(engine *policy.Engine, rules *rules.Rules) collector {
	return func(send sender) {
		p, r := engine.Policy(), rules.Reloads()
		send.gauge(policyInfo, 1, p.Fingerprint())
		send.gauge(policyRules, float64(len(p.RuleNames())))
		send.counter(policyReloads, r.Taken, "success")
		send.counter(policyReloads, r.Refused, "refused")
		send.gauge(policyLast, float64(r.Last.UnixMilli())/1000)
		send.gauge(policyStays, yes[r.Stays])
	}
}

var (
	rulesVersion     = prometheus.NewDesc("sluice_policy_version", "Version of the rules database at the last read.", nil, nil)
	rulesUnavailable = prometheus.NewDesc("sluice_rules_unavailable", "1 while the rules database is unavailable.", nil, nil)
	rulesAway        = prometheus.NewDesc("sluice_rules_away", "Deprecated: use sluice_rules_unavailable.", nil, nil)
	rulesFailures    = prometheus.NewDesc("sluice_rules_failures_total", "Failed reads of the rules database.", nil, nil)
	rulesAsked       = prometheus.NewDesc("sluice_rules_asked_timestamp_seconds", "Time of the last successful read of the rules database; 0 if no read has succeeded since the start.", nil, nil)
)

// databaseMetrics returns metrics about following a database of rules.
func databaseMetrics(db *source.Database) collector {
	return func(send sender) {
		s := db.Status()
		send.gauge(rulesVersion, float64(s.Version))
		send.gauge(rulesUnavailable, yes[s.Unavailable])
		send.gauge(rulesAway, yes[s.Unavailable])
		send.counter(rulesFailures, uint64(s.Failures))
		asked := 0.0
		if !s.Asked.IsZero() {
			asked = float64(s.Asked.UnixMilli()) / 1000
		}
		send.gauge(rulesAsked, asked)
	}
}
