package main

import "github.com/prometheus/client_golang/prometheus"

// policyCollector reads which policy is in force, and what has become of others, when it is asked.
type policyCollector struct{ rules *rules }

var (
	policyInfo    = prometheus.NewDesc("sluice_policy_info", "1 for the policy in force: instances with the same policy have the same fingerprint, whatever their overrides and subjects.", []string{"fingerprint"}, nil)
	policyRules   = prometheus.NewDesc("sluice_policy_rules", "Rules of the policy in force.", nil, nil)
	policyReloads = prometheus.NewDesc("sluice_policy_reloads_total", "Policies read, from a file or a database, by result: success is in force, refused is not.", []string{"result"}, nil)
	policyLast    = prometheus.NewDesc("sluice_policy_last_reload_success_timestamp_seconds", "When the policy in force came into force.", nil, nil)
	policyStays   = prometheus.NewDesc("sluice_policy_refused", "1 while the policy of the file or the database is refused and an older one stays in force: see the log.", nil, nil)
)

func (c policyCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{policyInfo, policyRules, policyReloads, policyLast, policyStays} {
		ch <- d
	}
}

func (c policyCollector) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	p, r := c.rules.engine.Policy(), &c.rules.reloads
	send(policyInfo, prometheus.GaugeValue, 1, p.Fingerprint())
	send(policyRules, prometheus.GaugeValue, float64(len(p.RuleNames())))
	send(policyReloads, prometheus.CounterValue, float64(r.taken.Load()), "success")
	send(policyReloads, prometheus.CounterValue, float64(r.refused.Load()), "refused")
	send(policyLast, prometheus.GaugeValue, float64(r.last.Load())/1000)
	send(policyStays, prometheus.GaugeValue, yes[c.rules.staying.Load() || r.fileStays.Load()])
}

// yes is how a gauge says yes or no.
var yes = map[bool]float64{true: 1}

// rulesCollector reads how following a database of rules goes when it is asked.
type rulesCollector struct{ rules *rules }

var (
	rulesVersion  = prometheus.NewDesc("sluice_policy_version", "Version of the database of rules that was last read.", nil, nil)
	rulesAway     = prometheus.NewDesc("sluice_rules_away", "1 while the database of rules does not answer.", nil, nil)
	rulesFailures = prometheus.NewDesc("sluice_rules_failures_total", "How often the database of rules did not answer.", nil, nil)
	rulesAsked    = prometheus.NewDesc("sluice_rules_asked_timestamp_seconds", "When the database of rules last answered; 0 if it has not since the start.", nil, nil)
)

func (c rulesCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{rulesVersion, rulesAway, rulesFailures, rulesAsked} {
		ch <- d
	}
}

func (c rulesCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.rules.db.Status()
	send := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, kind, v)
	}
	send(rulesVersion, prometheus.GaugeValue, float64(s.Version))
	send(rulesAway, prometheus.GaugeValue, yes[s.Away])
	send(rulesFailures, prometheus.CounterValue, float64(s.Failures))
	asked := 0.0
	if !s.Asked.IsZero() {
		asked = float64(s.Asked.UnixMilli()) / 1000
	}
	send(rulesAsked, prometheus.GaugeValue, asked)
}
