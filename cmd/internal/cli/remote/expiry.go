package remote

import (
	"time"

	"github.com/sluicehq/sluice/policy"
)

// terms returns until when something holds, and why, for the end of a sentence.
func terms(until, reason string) (text string) {
	if until != "" {
		text = ", until " + ending(until)
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

// ending returns a time of expiry in words.
func ending(until string) string {
	if len(until) == len("2006-01-02") {
		return "the end of " + until + " (UTC)"
	}
	return until
}

// listedEnd returns a time of expiry for a list.
func listedEnd(until string) string {
	if ended(until) {
		return until + " (ended)"
	}
	return until
}

func ended(until string) bool {
	end, err := policy.ParseUntil(until)
	return err == nil && !end.After(time.Now())
}

// blockEnd returns the end of a block in words.
func blockEnd(until *time.Time) string {
	if until == nil {
		return "for good"
	}
	u := until.UTC()
	if u.Equal(u.Truncate(24 * time.Hour)) { // where a date ends
		return "until " + ending(u.Add(-1).Format(time.DateOnly))
	}
	return "until " + u.Format(time.RFC3339)
}
