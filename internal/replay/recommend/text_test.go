package recommend

import (
	"testing"
	"time"
)

// A log that begins before midnight and ends after it goes on for hours, and not for two days.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5*time.Hour + 34*time.Minute + 12*time.Second: "5h34m",
		47 * time.Hour:                       "47h",
		48 * time.Hour:                       "2 days",
		71*time.Hour + 59*time.Minute:        "3 days",
		75 * time.Hour:                       "3 days 3h",
		42*time.Minute + 7*time.Second + 1e8: "42m7s",
		0:                                    "0s",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}
