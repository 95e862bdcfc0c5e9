package policy

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/pattern"
)

func TestDefaultOnError(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "words of paths that close a rule while the store is away") {
		p := must(pattern.Parse(row.In))
		if got := defaultOnError(nil, []*pattern.Pattern{p}, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v, want %v", row.In, got, row.Want)
		}
		if got := defaultOnError(nil, []*pattern.Pattern{p}, true); got != sluice.Allow {
			t.Errorf("%q in shadow: %v", row.In, got)
		}
	}
	if got := defaultOnError([]string{"login.example.com"}, nil, false); got != sluice.Deny {
		t.Errorf("a host: %v", got)
	}
}
