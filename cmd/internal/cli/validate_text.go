package cli

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/synced"
)

// inFlightText lists the integrations that count requests in flight.
const inFlightText = "in the gateway, in Go programs, and for callers of --check and of sluice.v1.Checks at --grpc that request a permit; auth requests, Envoy at --grpc, --resp and --spoe do not report the end of requests: for them, the rule only checks for a free permit"

// adaptiveText lists the integrations in which automatic limits of requests in flight apply.
const adaptiveText = "in the gateway and in Go programs (httplimit, grpclimit), separately in each process; --check, --grpc, --resp, --spoe and --auth see no responses and ignore the rule"

// printPolicy writes those effects of rules that the policy does not state.
func printPolicy(out *bytes.Buffer, p *policy.Policy) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, o := range p.Outages() {
		fmt.Fprintf(table, "  rule %s\t%s\n", o.Rule, outageText(o))
	}
	_ = table.Flush() // to a buffer
	for _, name := range p.InFlight() {
		fmt.Fprintf(out, "  rule %s counts requests in flight: %s\n", name, inFlightText)
	}
	for _, name := range p.Adaptive() {
		fmt.Fprintf(out, "  rule %s limits requests under way by the latency of the upstream: %s\n", name, adaptiveText)
	}
	for _, s := range p.SharedLimits() {
		fmt.Fprintf(out, "  rule %s shares %v by %s: never more in total, and a single active tenant gets all of it\n    %s\n    %s\n",
			s.Rule, s.Limit, strings.Join(s.By, ", "), allocationText(&s), settlingText(&s))
	}
	for _, d := range p.Debts() {
		if d.Unlimited {
			continue
		}
		fmt.Fprintf(out, "  rule %s, %v: %s\n", d.Rule, d.Limit, debtText(&d))
	}
	all := p.CountedApart()
	for _, r := range all {
		for _, plan := range r.Plans {
			fmt.Fprintf(table, "  rule %s\t%v, %s\n", r.Rule, plan.Limit, excessText(r.Consistency, plan))
		}
	}
	if len(all) > 0 {
		fmt.Fprintln(table, "  With the memory store, all are counted exactly.")
	}
	_ = table.Flush()
	for _, line := range p.Answers().Lines() {
		fmt.Fprintf(out, "  answer %s\n", line)
	}
}

// printCluster writes which rules a cluster charges in one step. The last parameter is true if the cluster charges
// other rules of a request one after the other.
func printCluster(out *bytes.Buffer, file string, together [][]string, apart bool) {
	for _, group := range together {
		fmt.Fprintf(out, "%s: charged in one step on a cluster: %s\n", file, strings.Join(group, ", "))
	}
	if len(together) == 0 && !apart {
		fmt.Fprintf(out, "%s: on a cluster: no request is charged for several rules\n", file)
	}
}

// outageText describes what a rule does while the store is unavailable.
func outageText(o policy.Outage) string {
	does := [...]string{sluice.Allow: "allow", sluice.Deny: "deny", sluice.Local: "limit to the local allowance"}[o.OnError]
	return fmt.Sprintf("%s if the store is unavailable (%s)", does, o.Why)
}

// consistencyText describes the consistencies other than strict, for instances that share a store.
var consistencyText = map[string]string{
	sluice.Leased.String(): "leased: instances spend units reserved in the store, and never exceed the limit",
	sluice.Synced.String(): "synced: instances count locally and exchange counts, so the limit can be exceeded",
}

// excessText describes by how much instances with consistency c can exceed the limit of p.
func excessText(c sluice.Consistency, p *sluice.Plan) string {
	if c == sluice.Leased {
		if ahead := lease.Ahead(p); ahead > 0 {
			return fmt.Sprintf("leased: instances reserve up to %v ahead; never above the limit", command.RoundUp(ahead))
		}
		return "leased: too little traffic for leases, so it is counted strictly"
	}
	if err := synced.Can(p); err != nil {
		return "synced: counted strictly nevertheless: " + strings.TrimPrefix(err.Error(), "synced: ")
	}
	return fmt.Sprintf("synced, the loosest: up to %d above the limit with 2 instances, and %d with 10, which exchange counts every %v",
		synced.Excess(p, 2), synced.Excess(p, 10), synced.Every)
}

// allocationText describes the allocation of a tenant of each weight while demand exceeds the limit.
func allocationText(s *policy.SharedLimit) string {
	const ten, hundred = 10, 100
	if len(s.Weights) == 1 {
		w := s.Weights[0].Weight
		return fmt.Sprintf("if %d tenants want more, each gets %s; if %d, %s", ten, s.Part(w, ten*w), hundred, s.Part(w, hundred*w))
	}
	sum := int64(0)
	for _, w := range s.Weights {
		sum += w.Weight
	}
	var parts []string
	for _, w := range s.Weights {
		who := w.Tiers
		if w.Others {
			who = append(who[:len(who):len(who)], "others")
		}
		parts = append(parts, fmt.Sprintf("%s %s (weight %d)", strings.Join(who, ", "), s.Part(w.Weight, ten*sum), w.Weight))
	}
	return fmt.Sprintf("if %d tenants of each weight want more, each gets: %s", ten, strings.Join(parts, "; "))
}

// settlingText describes how fast allocations follow demand.
func settlingText(s *policy.SharedLimit) string {
	settles := fmt.Sprintf("settled %v after demand exceeds the limit", s.Settles)
	if s.Settles == 0 {
		settles = fmt.Sprintf("settled later than %v after demand exceeds the limit, because the burst is small", 2*s.Window)
	}
	return fmt.Sprintf("%s; unused allocations are lent within %v; a tenant is active for %v after a request", settles, s.Window/2, s.Window)
}

// debtText describes how much a key can owe, how long the debt locks the key out, and what is allowed beyond the
// limit.
func debtText(d *policy.Debt) string {
	text := fmt.Sprintf("a key can owe %s, which locks it out for up to %s", amountText(d, d.Units), days(d.Lockout))
	switch d.Limit.Algorithm {
	case sluice.TokenBucket, sluice.GCRA:
		text += "; in the long run, no more than the limit is allowed"
	case sluice.SlidingWindowCounter:
		text += "; a debt is forgotten after two periods"
	default:
		text += "; a debt is forgotten after a period. Each period allows at most the limit, plus the cost of requests under way beyond their estimates"
	}
	if d.Reserved > 0 {
		text += fmt.Sprintf("; until its response reports the cost, a short request that does not limit its output is charged %s, and %d of these fit at once; the limit is exceeded at most by the cost of requests under way beyond their estimates", amountText(d, d.Reserved), d.Fit)
	}
	if d.Unseen {
		text += ", and by hidden reasoning of clients that leave early (unknown: estimate charges it)"
	}
	if d.AtOnce > 0 {
		text += fmt.Sprintf(" (in_flight: %d requests of a key at once)", d.AtOnce)
	}
	return text
}

// amountText returns a number of units of the limit, with the name of the unit.
func amountText(d *policy.Debt, n int64) string {
	text := d.Limit.Amount(n)
	switch {
	case d.Unit == policy.Tokens:
		text += " tokens"
	case d.Limit.Money == 0:
		text += " units"
	}
	return text
}

// days formats a duration, rounded up to whole days, or to seconds if it is less than two days.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		return printable.Duration(command.RoundUp(d))
	}
	return fmt.Sprintf("%d days", (d+day-1)/day)
}
