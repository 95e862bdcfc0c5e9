package answer

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// A limiter of several limits is answered for as the rule of a policy with them is.
func TestTakeSeveral(t *testing.T) {
	p, err := policyfile.Parse("p.yaml", []byte("version: 1\nrules: [{name: api, limits: [3/second, 5/minute, 40/hour]}]"))
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		engine := policy.NewEngine(memory.New(), p)
		var limits []sluice.Limit
		for _, text := range []string{"3/second", "5/minute", "40/hour"} {
			l, err := sluice.ParseLimit(text)
			if err != nil {
				t.Fatal(err)
			}
			limits = append(limits, l)
		}
		limiter, err := sluice.NewLimiter(memory.New(), "api", limits...)
		if err != nil {
			t.Fatal(err)
		}
		var d policy.Decision
		refused := 0
		for step := range 200 {
			Take(t.Context(), limiter, "api", "k", &d)
			want := engine.Decide(t.Context(), &policy.Request{})
			got, expected := encoded(&d), encoded(&want)
			if got != expected {
				t.Fatalf("step %d: %s\nwant %s", step, got, expected)
			}
			if !d.Allowed {
				refused++
			}
			time.Sleep(time.Duration(step) * 37 * time.Millisecond)
		}
		if refused < 20 || refused > 180 {
			t.Errorf("premise: %d of 200 were refused", refused)
		}
	})
}

// encoded returns the answer to a decision as one text.
func encoded(d *policy.Decision) string {
	var a Answer
	h := http.Header{}
	new(Encoder).Encode(&a, h, d, Client{})
	text := http.StatusText(a.Status) + "\n"
	for _, name := range append(StateFields[:], "Retry-After") {
		text += name + ": " + h.Get(name) + "\n"
	}
	return text + string(a.Body())
}
