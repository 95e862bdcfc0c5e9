package answer

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// A reused Answer keeps nothing of the previous answer, and does not change the fields of the previous answer.
func TestAnswerIsUsedAgain(t *testing.T) {
	limiter := policytest.Limiter(t, memory.New(), "2/hour")
	var e Encoder
	var a Answer
	var d policy.Decision
	var all []http.Header
	for i, want := range []int{200, 200, 429, 429, 200} {
		h := http.Header{}
		if all = append(all, h); i == 4 {
			d = policy.Decision{Allowed: true, Exempt: true}
		} else {
			Take(t.Context(), limiter, "one", "k", 1, &d)
		}
		e.Encode(&a, h, &d, Client{})
		if refused := h["Retry-After"] != nil; a.Status != want || refused != (want == 429) || (a.Body() != nil) != refused {
			t.Errorf("request %d: %d %v %s", i, a.Status, h, a.Body())
		}
	}
	for i, want := range []string{"1", "0", "0", "0", ""} {
		if got := all[i].Get("X-RateLimit-Remaining"); got != want {
			t.Errorf("the fields of answer %d now have %q", i, got)
		}
	}
	h := http.Header{}
	e.Malformed(&a, h, `"a" is wrong.`, Client{Header: http.Header{"Accept": {"text/plain"}}})
	if want := (http.Header{"Content-Type": {"text/plain"}, "Cache-Control": {"no-store"}}); a.Status != 400 ||
		string(a.Body()) != "\"a\" is wrong.\n" || !maps.EqualFunc(h, want, slices.Equal) {
		t.Errorf("%d %v %s", a.Status, h, a.Body())
	}
}

// Encode appends to existing list fields, without writing to the slice of another owner, and replaces other fields.
func TestFieldsJoin(t *testing.T) {
	outer := append(make([]string, 0, 8), "outer")
	h := http.Header{"Ratelimit": outer, "X-Ratelimit-Limit": {"7"}}
	var d policy.Decision
	Take(t.Context(), policytest.Limiter(t, memory.New(), "2/hour"), "one", "k", 1, &d)
	new(Encoder).Encode(new(Answer), h, &d, Client{})
	if got := h["Ratelimit"]; len(got) != 2 || got[0] != "outer" || !strings.HasPrefix(got[1], `"one"`) || outer[:2][1] != "" {
		t.Errorf("%q, and the existing slice has %q", got, outer[:2])
	}
	if got := h["X-Ratelimit-Limit"]; !slices.Equal(got, []string{"2"}) {
		t.Errorf("%q", got)
	}
}

// A request that can never be allowed gets no Retry-After, even while the store is unavailable.
func TestNeverHasNoRetryAfter(t *testing.T) {
	p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "all", Limit: "5/day"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, accept := range []string{"", "application/json", "text/plain"} {
		status, h, body := answered(p, &policy.Decision{Unavailable: true, RetryAfter: sluice.Never}, http.Header{"Accept": {accept}})
		if status != 503 || h["Retry-After"] != nil || strings.Contains(strings.ToLower(body), "retry") {
			t.Errorf("%q: %d %v\n%s", accept, status, h, body)
		}
	}
}

// An arena keeps texts of any length, also those that do not fit in a chunk.
func TestArenaText(t *testing.T) {
	var a arena
	var kept, want []string
	for n := range 3 * textChunk {
		text := []byte(strings.Repeat(string(rune('a'+n%26)), n))
		if n%100 != 0 && n > 200 {
			continue
		}
		kept, want = append(kept, a.text(text)), append(want, string(text))
		clear(text)
	}
	if !slices.Equal(kept, want) {
		t.Error("a text has changed")
	}
}

// A quota lists all limits, although the fields have space for only some of them.
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
