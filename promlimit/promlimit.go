// Package promlimit exports the decisions of a policy engine to Prometheus:
//
//	engine := policy.NewEngine(store, rules)
//	prometheus.MustRegister(promlimit.New(telemetry.Watch(engine, telemetry.Config{})))
//
// [Limiter] and [Semaphore] export the decisions of limiters and semaphores without a policy.
//
// Labels are names such as the rule, the door and the outcome, and never a key, a host or a path. So clients cannot
// create series. A rule has at most 7 series. If its cost is read from the bodies of responses, it has 13 more, and up
// to 21 for its cost by AI model: one for each of 20 models, and one for all others. A rule with "in_flight: auto" has
// 10 more. Each door, which is the integration that a request came through, has at most 9 series and a histogram, and
// 3 more if a rule has "in_flight: auto". At most [telemetry.MaxRules] rules have series of their own. Further rules
// share one name, and the limits that callers send share another name. Counts are read when Prometheus scrapes, at no
// extra cost to a decision.
package promlimit

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+name, help, labels, nil)
}

var (
	decisions = desc("decisions_total", "Decisions of each rule, by outcome: allow, delayed, degraded, deny, would_deny or marked.", "rule", "outcome")
	nearLimit = desc("near_limit_total", "Decisions that a rule allowed with less than a fifth of the limit left.", "rule")
	local     = desc("local_decisions_total", "Decisions of each rule made without the shared store, including denials.", "rule")
	requests  = desc("requests_total", "Requests decided, by door and outcome. Each request counts once, however many rules match it. Each check of a batch, and each descriptor of a request from Envoy, counts as a request of its own.", "door", "outcome")
	malformed = desc("requests_malformed_total", "Requests denied as malformed, because they lack a value that a rule requires, such as an API key, or because they are ambiguous: servers may read them in several ways.", "door")
	repeated  = desc("requests_repeated_total", "Repeated checks of a request, which are not charged again.", "door")
	exempt    = desc("requests_exempt_total", "Requests exempted by a rule, and CORS preflights exempted by cors.", "door")
	reserved  = desc("cost_reserved_units_total", "Units that requests were charged before their response reported the cost, by rule and unit: tokens, micro_usd or units. A request is counted when its response has ended.", "rule", "unit")
	settled   = desc("cost_settled_units_total", "Final cost, in units, of the same requests as in sluice_cost_reserved_units_total, by rule and unit.", "rule", "unit")
	models    = desc("cost_model_units_total", "sluice_cost_settled_units_total by model. The first 20 models for which the upstream has returned a response have a series each; all others are counted together as *other.", "rule", "unit", "model")
	estimates = desc("cost_estimates_total", "Responses that reported their cost, by how the charged estimate compares with the cost: high (more than twice the cost), low (less than the cost) or close.", "rule", "estimate")
	unread    = desc("cost_unread_total", "Responses that did not report their cost, by reason: encoded (compressed), type (neither JSON nor events), malformed, missing, interrupted, no_body (the integration does not read responses) or other. Such a request is charged by its estimate, or by the part of the response that Sluice read.", "rule", "reason")
	indebted  = desc("cost_debts_total", "How often a response left a limit in debt. The key's requests are denied until the debt has drained.", "rule")
	overloads = desc("requests_overloaded_total", "Requests denied by a rule with in_flight: auto, by door and class: critical, normal or sheddable.", "door", "class")
	loadOver  = desc("load_refusals_total", "Requests above the limit of a rule with in_flight: auto, by rule, class and outcome: deny, or would_deny if the rule is in shadow mode.", "rule", "class", "outcome")
	loadLimit = desc("load_limit", "Current limit of a rule with in_flight: auto for requests of the class normal, summed over the keys of the rule.", "rule")
	inFlight  = desc("load_in_flight", "Requests under way, as counted by a rule with in_flight: auto, summed over its keys.", "rule")
	latency   = desc("load_latency_seconds", "Typical time until the head of a response, as a rule with in_flight: auto measures it. If the rule has several keys, this is the latency of the key with the largest ratio of latency to base latency (see sluice_load_base_latency_seconds). 0 if unknown.", "rule")
	base      = desc("load_base_latency_seconds", "Base latency: the time until the head of a response while the upstream has no queue. If the rule has several keys, this is the base latency of the key whose latency is in sluice_load_latency_seconds. 0 if unknown.", "rule")
	duration  = desc("decision_duration_seconds", "Time for the decision on a request, including store calls, without the wait in a queue.", "door")
)

// always has the outcomes with a series from the start, for each rule and door. A rate includes the first decision
// only if the series was 0 before.
var always = [telemetry.Outcomes]bool{telemetry.Allow: true, telemetry.Deny: true}

type collector struct{ recorder *telemetry.Recorder }

// New returns a collector of the counts of a recorder. The metrics are:
//
//	sluice_decisions_total{rule,outcome}      allow, delayed, degraded, deny, would_deny, marked
//	sluice_near_limit_total{rule}             allowed, with less than a fifth of the limit left
//	sluice_local_decisions_total{rule}        made without the shared store
//	sluice_requests_total{door,outcome}       requests, each counted once
//	sluice_requests_malformed_total{door}     requests denied as malformed
//	sluice_requests_repeated_total{door}      repeated requests, which are not charged again
//	sluice_requests_exempt_total{door}        requests that a rule exempts, and exempt preflights
//	sluice_decision_duration_seconds{door}    a histogram
//
// Rules with a cost that is read from the bodies of responses also have:
//
//	sluice_cost_reserved_units_total{rule,unit}     charged before the response; in tokens, micro_usd or units
//	sluice_cost_settled_units_total{rule,unit}      the final cost, in the same units
//	sluice_cost_model_units_total{rule,unit,model}  the final cost by model, with at most 21 models
//	sluice_cost_estimates_total{rule,estimate}      high, close, low
//	sluice_cost_unread_total{rule,reason}           the response does not report its cost
//	sluice_cost_debts_total{rule}                   responses that left a limit in debt
//
// Rules with "in_flight: auto" also have:
//
//	sluice_load_refusals_total{rule,class,outcome}    deny, would_deny
//	sluice_load_limit{rule}                           the limit for the class normal
//	sluice_load_in_flight{rule}                       requests under way
//	sluice_load_latency_seconds{rule}                 until the head of a response
//	sluice_load_base_latency_seconds{rule}            until the head of a response, without a queue
//	sluice_requests_overloaded_total{door,class}      denied by one of these rules
//
// The series of the outcomes allow and deny exist from the start, and those of other outcomes from the first such
// decision. If a rule is removed from the policy, its series end.
func New(r *telemetry.Recorder) prometheus.Collector { return collector{r} }

// Describe implements [prometheus.Collector].
func (collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{decisions, nearLimit, local, requests, malformed, repeated, exempt, reserved, settled, models, estimates, unread, indebted, overloads, loadOver, loadLimit, inFlight, latency, base, duration} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c collector) Collect(ch chan<- prometheus.Metric) {
	for _, t := range c.recorder.Rules() {
		rule := strings.ToValidUTF8(t.Rule, "\uFFFD")
		count(ch, decisions, rule, &t.Counts)
		ch <- counter(nearLimit, t.Near, rule)
		ch <- counter(local, t.Local, rule)
	}
	for _, t := range c.recorder.Costs() {
		costs(ch, strings.ToValidUTF8(t.Rule, "\uFFFD"), &t)
	}
	automatic := c.recorder.Loads()
	for _, t := range automatic {
		loads(ch, strings.ToValidUTF8(t.Rule, "\uFFFD"), &t)
	}
	for _, t := range c.recorder.Doors() {
		door := strings.ToValidUTF8(t.Door, "\uFFFD")
		count(ch, requests, door, &t.Counts)
		ch <- counter(malformed, t.Malformed, door)
		ch <- counter(repeated, t.Repeated, door)
		ch <- counter(exempt, t.Exempt, door)
		if len(automatic) > 0 {
			byClass(ch, overloads, &t.Overloaded, door)
		}
		ch <- histogram(&t.Took, door)
	}
}

// count sends a series for each outcome.
func count(ch chan<- prometheus.Metric, d *prometheus.Desc, of string, counts *telemetry.Counts) {
	for o, n := range counts {
		if n > 0 || always[o] {
			ch <- counter(d, n, of, telemetry.Outcome(o).String())
		}
	}
}

var unitLabels = map[policy.Unit]string{policy.Tokens: "tokens", policy.USD: "micro_usd", policy.Numbers: "units"}

// costs sends all series of a rule with a cost from responses, including series that are still 0.
func costs(ch chan<- prometheus.Metric, rule string, t *telemetry.CostTotals) {
	ch <- counter(reserved, t.Reserved, rule, unitLabels[t.Unit])
	ch <- counter(settled, t.Settled, rule, unitLabels[t.Unit])
	for model, n := range t.Models {
		ch <- counter(models, n, rule, unitLabels[t.Unit], model)
	}
	if _, some := t.Models[telemetry.OtherModels]; !some {
		ch <- counter(models, 0, rule, unitLabels[t.Unit], telemetry.OtherModels)
	}
	ch <- counter(estimates, t.High, rule, "high")
	ch <- counter(estimates, t.Low, rule, "low")
	ch <- counter(estimates, t.Close, rule, "close")
	for i, reason := range telemetry.UnreadReasons {
		ch <- counter(unread, t.Unread[i], rule, reason)
	}
	ch <- counter(indebted, t.Indebted, rule)
}

// loads sends the series of a rule with an automatic limit.
func loads(ch chan<- prometheus.Metric, rule string, t *telemetry.LoadTotals) {
	byClass(ch, loadOver, &t.Denied, rule, telemetry.Deny.String())
	byClass(ch, loadOver, &t.Watched, rule, telemetry.WouldDeny.String())
	gauge(ch, loadLimit, float64(t.Limit), rule)
	gauge(ch, inFlight, float64(t.InFlight), rule)
	gauge(ch, latency, t.Latency.Seconds(), rule)
	gauge(ch, base, t.Base.Seconds(), rule)
}

// byClass sends the count of each class. The class is the second label.
func byClass(ch chan<- prometheus.Metric, d *prometheus.Desc, counts *telemetry.ByClass, first string, others ...string) {
	for class, name := range policy.ClassNames() {
		ch <- counter(d, counts[class], append([]string{first, name}, others...)...)
	}
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, v float64, rule string) {
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, rule)
}

func counter(d *prometheus.Desc, n uint64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
}

func histogram(h *telemetry.Histogram, door string) prometheus.Metric {
	buckets := make(map[float64]uint64, len(h.Bounds))
	total := uint64(0)
	for i, n := range h.Counts {
		if total += n; i < len(h.Bounds) { // the buckets of Prometheus are cumulative
			buckets[h.Bounds[i].Seconds()] = total
		}
	}
	return prometheus.MustNewConstHistogram(duration, total, h.Sum.Seconds(), buckets, door)
}
