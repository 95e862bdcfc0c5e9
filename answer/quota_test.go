package answer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// All limits are told, though the fields have room for some.
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
}

func engine(t *testing.T, doc policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}
