package promlimit

import (
	"cmp"
	"context"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/telemetry"
)

// Limiter returns a collector of the decisions of a limiter without a policy. Call it before the first use of l.
// The metrics are:
//
//	sluice_limiter_decisions_total{limiter,outcome}  allow, delayed, degraded, deny
//	sluice_limiter_errors_total{limiter,on_error}    calls that the store did not decide: allow, deny, local, returned
//
// The label limiter is the name of l, or "default" if the name is empty. The names of the limiters in one registry
// must differ. Each Take counts, including the Takes of a Wait; httplimit and grpclimit make one Take for each
// request. Decisions of limiters that [sluice.Limiter.With] derives from l count for l. For each Take, the collector
// makes an atomic addition, or two if on_error decides.
//
// The label on_error is the [sluice.OnError] that decided in place of the store, or "returned" if the caller got
// the error. In the second case, no outcome is counted.
func Limiter(l *sluice.Limiter) prometheus.Collector {
	t := newTally("limiter", l.Name())
	l.Observe(t.note)
	return t
}

// Semaphore returns a collector of the decisions of a semaphore. Call it before the first use of s. The metrics are
// the metrics of [Limiter], with "semaphore" in place of "limiter", and:
//
//	sluice_semaphore_held{semaphore}  permits that this process holds, over all keys
func Semaphore(s *sluice.Semaphore) prometheus.Collector {
	t := newTally("semaphore", s.Name())
	t.holds = newDesc("semaphore", "held", "Permits of a semaphore that this process holds, over all keys.", t.name)
	t.held = s.Held
	s.Observe(t.note)
	return t
}

// instead has the values of the label on_error.
var instead = [...]string{sluice.Allow: "allow", sluice.Deny: "deny", sluice.Local: "local", returned: "returned"}

const returned = sluice.Local + 1

// tally counts the decisions of a limiter or a semaphore.
type tally struct {
	name                string
	decisions, failures *prometheus.Desc
	outcomes            [telemetry.Deny + 1]atomic.Uint64
	errors              [len(instead)]atomic.Uint64
	holds               *prometheus.Desc // nil for a limiter
	held                func() int
}

func newTally(kind, name string) *tally {
	name = strings.ToValidUTF8(cmp.Or(name, "default"), "\uFFFD")
	return &tally{
		name:      name,
		decisions: newDesc(kind, "decisions_total", "Decisions of a "+kind+" without a policy, by outcome: allow, delayed, degraded or deny.", name, "outcome"),
		failures:  newDesc(kind, "errors_total", "Calls of a "+kind+" without an answer from the shared store, by the on_error that decided instead (allow, deny or local), or returned if the caller got the error.", name, "on_error"),
	}
}

// newDesc describes a metric of a limiter or semaphore. The name is a constant label, so that one registry can have
// several limiters.
func newDesc(kind, metric, help, name string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+kind+"_"+metric, help, labels, prometheus.Labels{kind: name})
}

func (t *tally) note(_ context.Context, o sluice.Observation) {
	switch d := &o.Decision; {
	case o.Err != nil:
		t.errors[returned].Add(1)
		return
	case d.Origin == sluice.ByLocalShare:
		t.errors[sluice.Local].Add(1)
	case d.Origin.Degraded() && d.Allowed:
		t.errors[sluice.Allow].Add(1)
	case d.Origin.Degraded():
		t.errors[sluice.Deny].Add(1)
	}
	t.outcomes[outcome(&o.Decision)].Add(1)
}

// outcome returns the outcome of a decision. If several apply, it selects the same one as package telemetry does for a
// rule.
func outcome(d *sluice.Decision) telemetry.Outcome {
	switch {
	case !d.Allowed:
		return telemetry.Deny
	case d.Origin.Degraded():
		return telemetry.Degraded
	case d.Delay > 0:
		return telemetry.Delayed
	}
	return telemetry.Allow
}

// Describe implements [prometheus.Collector].
func (t *tally) Describe(ch chan<- *prometheus.Desc) {
	ch <- t.decisions
	ch <- t.failures
	if t.holds != nil {
		ch <- t.holds
	}
}

// Collect implements [prometheus.Collector].
func (t *tally) Collect(ch chan<- prometheus.Metric) {
	for o := range t.outcomes {
		if n := t.outcomes[o].Load(); n > 0 || always[o] {
			ch <- counter(t.decisions, n, telemetry.Outcome(o).String())
		}
	}
	for i, name := range instead {
		ch <- counter(t.failures, t.errors[i].Load(), name)
	}
	if t.holds != nil {
		ch <- prometheus.MustNewConstMetric(t.holds, prometheus.GaugeValue, float64(t.held()))
	}
}
