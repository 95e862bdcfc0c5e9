package telemetry

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// What each subject did in each five minutes of the last hour is that of all instances, and what is older is not
// taken for it, whenever they have told.
func TestSteps(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	r := rand.New(rand.NewPCG(13, 5))
	instances := []*subjects{newSubjects(), newSubjects()}
	truth := map[string]map[int64]uint64{}
	telling := 0
	for at := begin; at.Before(begin.Add(2 * time.Hour)); at = at.Add(7 * time.Second) {
		for range r.IntN(20) {
			key := fmt.Sprintf("pages/%d", min(r.IntN(12), r.IntN(12)))
			instances[r.IntN(2)].count(0, "pages", key, true, at.UnixMilli())
			if truth[key] == nil {
				truth[key] = map[int64]uint64{}
			}
			truth[key][at.Unix()/300]++
		}
		if r.IntN(40) > 0 {
			continue
		}
		var f fleetSubjects
		for _, s := range instances {
			if err := f.add(s.export(at)); err != nil {
				t.Fatal(err)
			}
		}
		later := at.Add(time.Duration(r.IntN(20)) * time.Second) // that is asked what they have told
		rule := &Rule{Name: "pages"}
		f.fill(rule, new(policy.Policy), later)
		for _, item := range rule.Refusals[Hour].Items {
			for i, got := range item.Steps {
				want := truth[item.Key][later.Unix()/300-int64(SubjectSteps-1-i)]
				if got != want {
					t.Fatalf("%v, told at %v: %s has %d in step %d, want %d: %v", later, at, item.Key, got, i, want, item.Steps)
				}
				if want > 0 {
					telling++
				}
			}
		}
	}
	if telling < 1000 {
		t.Errorf("only %d steps had anything in them", telling)
	}
}
