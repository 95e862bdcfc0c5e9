package answer

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// An answer that is used again has nothing of the last one, whose fields stay as they were.
func TestAnswerIsUsedAgain(t *testing.T) {
	limiter := mustLimiter(t, memory.New(), "2/hour", sluice.TokenBucket)
	var e Encoder
	var a Answer
	var d policy.Decision
	var before []Field
	for i, want := range []int{200, 200, 429, 429} {
		Take(t.Context(), limiter, "one", "k", &d)
		e.Encode(&a, &d, Client{})
		refused := slices.ContainsFunc(a.Fields, func(f Field) bool { return f.Name == "Retry-After" })
		if a.Status != want || refused != (want == 429) || (a.Body() != nil) != refused {
			t.Errorf("request %d: %d %v %s", i, a.Status, a.Fields, a.Body())
		}
		if i == 0 {
			before = slices.Clone(a.Fields)
		}
	}
	if remaining := before[slices.IndexFunc(before, func(f Field) bool { return f.Name == "X-Ratelimit-Remaining" })]; remaining.Value != "1" {
		t.Errorf("the first answer says now: %v", before)
	}
	e.Malformed(&a, `"a" is wrong.`, Client{Header: http.Header{"Accept": {"text/plain"}}})
	if a.Status != 400 || string(a.Body()) != "\"a\" is wrong.\n" || len(a.Fields) != 2 {
		t.Errorf("%d %v %s", a.Status, a.Fields, a.Body())
	}
	a.Reset()
	if a.Body() != nil || a.Status != 0 || len(a.Fields) != 0 {
		t.Errorf("%+v", a)
	}
	for _, f := range a.Fields[:cap(a.Fields)] {
		if f != (Field{}) {
			t.Errorf("an answer that was reset holds %v", f)
		}
	}
}

// Joined fields go on with a list that is not theirs, which stays as it is.
func TestSetFields(t *testing.T) {
	outer := append(make([]string, 0, 8), "outer")
	h := http.Header{"Ratelimit": outer, "X-Ratelimit-Limit": {"7"}}
	limiter := mustLimiter(t, memory.New(), "2/hour", sluice.TokenBucket)
	var d policy.Decision
	Take(t.Context(), limiter, "one", "k", &d)
	var a Answer
	new(Encoder).Encode(&a, &d, Client{})
	a.SetFields(h)
	if got := h["Ratelimit"]; len(got) != 2 || got[0] != "outer" || !strings.HasPrefix(got[1], `"one"`) || outer[:2][1] != "" {
		t.Errorf("%q, and behind the list that was there %q", got, outer[:2])
	}
	if got := h["X-Ratelimit-Limit"]; !slices.Equal(got, []string{"2"}) {
		t.Errorf("%q", got)
	}
}
