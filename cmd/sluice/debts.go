package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// printDebts says how much a key can owe under each limit of a rule whose cost the response tells.
func printDebts(out io.Writer, p *policy.Policy) error {
	for _, d := range p.Debts() {
		if _, err := fmt.Fprintf(out, "  rule %s, %v: %s\n", d.Rule, d.Limit, howOwed(&d)); err != nil {
			return err
		}
	}
	return nil
}

// howOwed puts into words how much a key can owe, for how long that locks it out, and what passes all the same.
func howOwed(d *policy.Debt) string {
	text := fmt.Sprintf("a key can owe %d units, which locks it out for up to %s", d.Units, days(d.Lockout))
	switch d.Limit.Algorithm {
	case sluice.TokenBucket, sluice.GCRA:
		text += "; in the long run no more passes than the limit"
	case sluice.SlidingWindowCounter:
		text += "; a debt is forgotten after two periods"
	default:
		text += "; a debt is forgotten after a period, in which at most the limit passes, and what each request under way costs beyond its estimate"
	}
	if d.AtOnce > 0 {
		text += fmt.Sprintf(" (in_flight: %d requests of a key at once)", d.AtOnce)
	}
	return text
}

// days writes a length of time, rounded up, with days where it is that long.
func days(d time.Duration) string {
	const day = 24 * time.Hour
	if d < 2*day {
		text := short(d).String()
		if strings.HasSuffix(text, "m0s") {
			text = strings.TrimSuffix(text, "0s")
		}
		if strings.HasSuffix(text, "h0m") {
			text = strings.TrimSuffix(text, "0m")
		}
		return text
	}
	return fmt.Sprintf("%d days", (d+day-1)/day)
}
