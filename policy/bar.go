package policy

import (
	"fmt"

	"github.com/sluicehq/sluice"
)

// barred returns the first rule with "block" that applies and is no shadow, or nil.
func (s *scratch) barred() *rule {
	for _, r := range s.barring {
		if !r.shadow {
			return r
		}
	}
	return nil
}

// refuseBarred refuses the request, for which nothing is counted.
func (s *scratch) refuseBarred(d *Decision, by *rule) {
	d.Blocked, d.RetryAfter = by.name, sluice.Never
}

// addBarring adds what rules with "block" say to d, and what blocks subjects, behind what limits
// say. An exemption comes before them.
func (s *scratch) addBarring(d *Decision) {
	if d.Exempt {
		return
	}
	for _, r := range s.barring {
		d.Results = append(d.Results, Result{
			Rule: r.name, From: blocked, Source: r.source, Shadow: r.shadow, at: int32(r.index) + 1, Decision: sluice.Decision{RetryAfter: sluice.Never},
		})
	}
	s.addBlocked(d)
}

// explainBarred explains a request that rule by blocks.
func (s *scratch) explainBarred(by *rule) []RuleTrace {
	all := make([]RuleTrace, len(s.policy.rules))
	for i := range s.policy.rules {
		r := &s.policy.rules[i]
		switch {
		case r.block:
			all[i] = s.explainBlock(r)
		case r.exempt:
			all[i] = RuleTrace{Rule: r.name, Source: r.source, Why: s.whyNot(r)}
		default:
			all[i] = RuleTrace{Rule: r.name, Source: r.source, Why: fmt.Sprintf("rule %q blocks the request", by.name)}
		}
	}
	return all
}

// explainBlock explains what a rule with "block" makes of a request that nothing exempts.
func (s *scratch) explainBlock(r *rule) RuleTrace {
	for _, b := range s.barring {
		if b != r {
			continue
		}
		why := "blocks the request"
		if r.shadow {
			why = "would block the request" + r.onlyWatched()
		}
		return RuleTrace{Rule: r.name, Source: r.source, Applies: true, Why: withClient(why, r.whyClient(s))}
	}
	return RuleTrace{Rule: r.name, Source: r.source, Why: s.whyNot(r)}
}

// withClient adds to why a rule applies what its conditions on the client say, if there are any.
func withClient(why, client string) string {
	switch {
	case client == "":
		return why
	case why == everyRequest:
		return client
	}
	return why + ", " + client
}

// everyRequest is why a rule without conditions applies.
const everyRequest = "every request"
