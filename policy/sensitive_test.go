package policy

import (
	"fmt"
	"testing"

	"github.com/sluicehq/sluice"
)

func TestDefaultOnError(t *testing.T) {
	t.Parallel()
	for _, row := range names(t, "words of paths that close a rule while the store is away") {
		p := patternOf(t, row.In)
		if got := defaultOnError(nil, []*pattern{p}, false); fmt.Sprint(got) != row.Want {
			t.Errorf("%q: %v, want %v", row.In, got, row.Want)
		}
		if got := defaultOnError(nil, []*pattern{p}, true); got != sluice.Allow {
			t.Errorf("%q in shadow: %v", row.In, got)
		}
	}
	if got := defaultOnError([]string{"login.example.com"}, nil, false); got != sluice.Deny {
		t.Errorf("a host: %v", got)
	}
}
