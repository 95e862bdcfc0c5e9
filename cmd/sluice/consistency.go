package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/synced"
)

// printConsistency says how the instances count the rules together that are not strict.
func printConsistency(out io.Writer, p *policy.Policy) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	all := p.CountedApart()
	for _, r := range all {
		for _, plan := range r.Plans {
			fmt.Fprintf(table, "  rule %s\t%v, %s\n", r.Rule, plan.Limit, howCounted(r.Consistency, plan))
		}
	}
	if len(all) > 0 {
		fmt.Fprintln(table, "  Over the memory store all are counted exactly.")
	}
	return table.Flush()
}

// howCounted puts into words what a consistency means for a limit.
func howCounted(c sluice.Consistency, p *sluice.Plan) string {
	if c == sluice.Leased {
		if ahead := lease.Ahead(p); ahead > 0 {
			return fmt.Sprintf("leased: instances reserve up to %v ahead; never above the limit", short(ahead))
		}
		return "leased: too little traffic for leases to pay off, so it is counted strictly"
	}
	if err := synced.Can(p); err != nil {
		return "synced: counted strictly all the same: " + strings.TrimPrefix(err.Error(), "synced: ")
	}
	return fmt.Sprintf("synced, the loosest: up to %d too many pass with 2 instances, and %d with 10, which hear of each other every %v",
		synced.Excess(p, 2), synced.Excess(p, 10), synced.Every)
}

// inConsistency says how instances that share a store count a rule that is not strict.
var inConsistency = map[string]string{
	sluice.Leased.String(): "leased: instances spend what they have reserved in the store, and never more than the limit",
	sluice.Synced.String(): "synced: instances count for themselves and tell each other, so that more than the limit can pass",
}
