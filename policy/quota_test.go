package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
)

// FuzzQuota holds that what a quota tells of a rule is what the rule then says.
func FuzzQuota(f *testing.F) {
	f.Add("/orders/7", "GET", "k", "pro", uint8(3))
	f.Add("", "POST", "", "", uint8(0))
	script := testkit.SectionOf(f, "testdata/scripts/blocks.txt", "quotas say what holds for a caller, and take nothing")
	rules, _, _ := strings.Cut(script.Text, "---")
	p := parse(f, rules)
	f.Fuzz(func(t *testing.T, path, method, key, plan string, before uint8) {
		e := NewEngine(memory.NewSize(1<<20), p)
		r := request(method, path, "192.0.2.1", "X-Api-Key: "+key, "X-Plan: "+plan)
		for range before % 16 {
			e.Decide(t.Context(), r)
		}
		d := e.Quota(t.Context(), r)
		x := e.Explain(t.Context(), r)
		if path != "" && (d.Exempt != x.Decision.Exempt || d.Blocked != x.Decision.Blocked) {
			t.Fatalf("%+v, explained as %+v", d, x.Decision)
		}
		for _, q := range d.Results {
			found := path == "" || x.Decision.Missing != "" // then explained by fewer rules
			for _, is := range x.Decision.Results {
				found = found || is.Rule == q.Rule && is.Name == q.Name && is.From == q.From && is.Plan == q.Plan && is.Remaining == q.Remaining
			}
			if !found {
				t.Fatalf("%s", fmt.Sprintf("%+v is not in %+v", q, x.Decision))
			}
		}
	})
}
