package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// printShares says what tenants get of the limits that are shared.
func printShares(out io.Writer, p *policy.Policy) error {
	for _, s := range p.SharedLimits() {
		if _, err := fmt.Fprintf(out, "  rule %s shares %v by %s: never more than that in all, and one tenant alone gets all of it\n    %s\n    %s\n",
			s.Rule, s.Limit, strings.Join(s.By, ", "), amongMany(&s), howSettled(&s)); err != nil {
			return err
		}
	}
	return nil
}

// amongMany says what a tenant of each weight gets while many ask for more than there is.
func amongMany(s *policy.SharedLimit) string {
	const ten, hundred = 10, 100
	if len(s.Weights) == 1 {
		w := s.Weights[0].Weight
		return fmt.Sprintf("of %d tenants who ask for more, each gets %s; of %d, %s", ten, s.Part(w, ten*w), hundred, s.Part(w, hundred*w))
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
	return fmt.Sprintf("of %d tenants of each weight who ask for more, each gets: %s", ten, strings.Join(parts, "; "))
}

// howSettled says how fast shares follow what is asked for.
func howSettled(s *policy.SharedLimit) string {
	settles := fmt.Sprintf("settled %v after more is asked for than there is", s.Settles)
	if s.Settles == 0 {
		settles = fmt.Sprintf("settled later than %v after more is asked for than there is, since the burst is small", 2*s.Window)
	}
	return fmt.Sprintf("%s; what somebody stops using is lent within %v; active is who has asked within %v", settles, s.Window/2, s.Window)
}
