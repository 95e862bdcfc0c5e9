package console

import (
	"fmt"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

// lastHour is what a change would have done to the latest requests. It is nil if they are not kept.
type lastHour struct{ *recent.Trial }

func lastHourOf(t *recent.Trial) *lastHour {
	if t == nil {
		return nil
	}
	return &lastHour{t}
}

// Headline is the result in a sentence or two. Counters before the first request are unknown, so a number is a range
// from empty counters to the most that older ones can make of it.
func (l *lastHour) Headline() string {
	if l.Requests == 0 {
		return "No request of the last hour is recorded yet, so the change was not tried on any."
	}
	tried := fmt.Sprintf("Of the %s since %s", words.Counted(l.Requests, "request"), timeWords(l.From))
	newly, freed := "newly denies "+upTo(l.Newly, l.Most.Newly), "allows "+upTo(l.Freed, l.Most.Freed)+" that were denied"
	switch {
	case l.Most == (recent.Change{}):
		return tried + ", the change denies the same ones as before."
	case l.Most.Newly == 0:
		return tried + ", the change " + freed + "."
	case l.Most.Freed == 0:
		return tried + ", the change " + newly + "."
	}
	return tried + ", the change " + newly + ", and " + freed + "."
}

// Bad reports whether the change may newly deny requests.
func (l *lastHour) Bad() bool { return l.Most.Newly > 0 }

// Uncertain is a sentence about counters from before the first request, or "".
func (l *lastHour) Uncertain() string {
	if l.Change == l.Most {
		return ""
	}
	return "A range ends with about the most that counters from before the first request can make of it."
}

// Old is a sentence about requests that the present policy decides differently now, or "".
func (l *lastHour) Old() string {
	if l.Differs == 0 {
		return ""
	}
	return fmt.Sprintf("The policy in force decides %s differently from what happened, because counters are older or shared, or the policy has changed since.", words.Counted(l.Differs, "request"))
}

// upTo returns a count, or the range from it to the most if that is more.
func upTo(n, most int64) string {
	if n == most {
		return number(n)
	}
	return number(n) + " to " + number(most)
}
