package remote

import (
	"testing"
	"time"
)

// The end of a block at midnight UTC is shown as the last day of the block, and any other time as a time.
func TestBlockEnd(t *testing.T) {
	zone := time.FixedZone("", 7200)
	for want, until := range map[string]time.Time{
		"until the end of 2126-12-31 (UTC)": time.Date(2127, 1, 1, 2, 0, 0, 0, zone),
		"until 2127-01-01T00:00:01Z":        time.Date(2127, 1, 1, 2, 0, 1, 0, zone),
		"until 2126-12-31T12:00:00Z":        time.Date(2126, 12, 31, 12, 0, 0, 0, time.UTC),
	} {
		if got := blockEnd(&until); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := blockEnd(nil); got != "for good" {
		t.Errorf("%q", got)
	}
}
