package spelling

import (
	"strings"
	"testing"
)

func TestNearest(t *testing.T) {
	keys := []string{"limit", "on_error", "shadow", "exempt", "match", "allow", "skip", "X-Plan"}
	for name, want := range map[string]string{
		"limt": "limit", "LIMIT": "limit", "limits": "limit", "ilmit": "limit", "mach": "match",
		"onError": "on_error", "on-error": "on_error", "ON_ERROR": "on_error", "x-plan": "X-Plan", "xplan": "X-Plan",
		"": "", "l": "", "window": "", "rate": "", "time": "", "limit" + strings.Repeat("x", 60): "",
		// Settings that allow more requests are never suggested, however similar they are.
		"shadw": "", "Shadow": "", "exmpt": "", "alow": "", "skipp": "",
	} {
		if got := Nearest(name, keys); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestSuggest(t *testing.T) {
	names := []string{"share", "skip", "refuse"}
	for name, want := range map[string]string{
		"shar": `did you mean "share"?`, "Skip": `use "share", "skip" or "refuse"`, "never": `use "share", "skip" or "refuse"`,
	} {
		if got := Suggest(name, names); got != want {
			t.Errorf("%q: %s, want %s", name, got, want)
		}
	}
}

func TestEditDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"limit", "limit", 0}, {"limt", "limit", 1}, {"ilmit", "limit", 1}, {"kitten", "sitting", 3}} {
		if got := editDistance(tt.a, tt.b); got != tt.want {
			t.Errorf("%q, %q: %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
