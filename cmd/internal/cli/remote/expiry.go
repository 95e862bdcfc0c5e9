package remote

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/policy"
)

// expiry has the flags of settings that may expire.
type expiry struct{ until, reason string }

func (e *expiry) addFlags(f *pflag.FlagSet) {
	addUntil(f, &e.until)
	f.StringVar(&e.reason, "reason", "", "reason, shown to people")
}

func addUntil(f *pflag.FlagSet, until *string) {
	f.StringVar(until, "until", "", "expiry: a `date`, which includes that day in UTC, or a time such as 2026-12-31T18:00:00Z")
}

// check returns an error if the end has passed. The parameter is a command that ends the setting now; the error
// recommends it.
func (e *expiry) check(instead string) error {
	if !ended(e.until) {
		return nil
	}
	return fmt.Errorf("--until: %s has passed: \"sluice %s\" ends it now", ending(e.until), instead)
}

// terms describes the end and the reason of a setting, for the end of a sentence.
func terms(until, reason string) (text string) {
	if until != "" {
		text = ", until " + ending(until)
	}
	if reason != "" {
		text += " (" + reason + ")"
	}
	return text
}

// ending describes a time of expiry within a sentence.
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
	if u.Equal(u.Truncate(24 * time.Hour)) { // expires at the end of a day
		return "until " + ending(u.Add(-1).Format(time.DateOnly))
	}
	return "until " + u.Format(time.RFC3339)
}
