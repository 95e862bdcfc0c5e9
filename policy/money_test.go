package policy

import (
	"testing"

	"github.com/sluicehq/sluice"
)

func TestExplore(t *testing.T) {
	for _, text := range []string{"50 USD/day", "1000 USD/30d", "868 USD/30d", "869 USD/30d", "30000 USD/day", "1000 USD/month", "999.999937 USD/30d", "1000000 USD/365d", "4294 USD/day", "4295 USD/day", "1000000000 USD/365d", "0.50 USD/hour", "50 USD/day burst 100 USD", "50 USD/1s", "0.000001 USD/day", "500000 USD/month from 15"} {
		for _, a := range sluice.Algorithms() {
			l, err := sluice.ParseLimit(text)
			if err != nil {
				t.Log(err)
				continue
			}
			if l.MonthDay == 0 {
				l.Algorithm = a
			}
			p, err := newPlan(l)
			if err != nil {
				c := newCompiler(nil)
				c.tooMuch("limit", l)
				t.Log(a, err, c.problems)
				continue
			}
			t.Log(a, p.Limit, p.Limit.Money, p.Tick, p.Fingerprint)
		}
	}
}
