package answer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// All limits are told, though the fields have room for some, and nothing where nothing is known.
func TestQuotaOfMany(t *testing.T) {
	t.Parallel()
	var doc policy.Document
	for i := range 2 * maxVisible {
		doc.Rules = append(doc.Rules, policy.Rule{Name: fmt.Sprint("r", i), Limit: "1/day"})
	}
	e := engine(t, doc)
	var a Answer
	var encoder Encoder
	d := e.Quota(t.Context(), &policy.Request{})
	encoder.Quota(&a, http.Header{}, &d, Client{})
	var told struct{ Limits []struct{ Name string } }
	if err := json.Unmarshal(a.Body(), &told); err != nil || len(told.Limits) != 2*maxVisible {
		t.Errorf("%d limits, %v", len(told.Limits), err)
	}
	for _, d := range []policy.Decision{
		{Allowed: true, Degraded: true, Err: http.ErrServerClosed, Results: []policy.Result{{Rule: "a", Decision: sluice.Decision{Allowed: true, Origin: sluice.ByOnError}}}},
		{Unavailable: true, Degraded: true, RetryAfter: time.Second, Results: []policy.Result{{Rule: "a", Decision: sluice.Decision{Origin: sluice.ByOnError}}}},
	} {
		d.Results[0].Plan = e.Quota(t.Context(), &policy.Request{}).Results[0].Plan
		h := http.Header{}
		encoder.Quota(&a, h, &d, Client{})
		if a.Status != 503 || h.Get("Retry-After") != "1" || !strings.Contains(string(a.Body()), "temporary_reduced_capacity") {
			t.Errorf("without the store: %d, %v, %s", a.Status, h, a.Body())
		}
	}
}

func engine(t *testing.T, doc policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}
