package console

import (
	"fmt"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

// lastHour is the effect of a change on the latest requests, or nil if they are not recorded.
type lastHour struct{ *recent.Trial }

func lastHourOf(t *recent.Trial) *lastHour {
	if t == nil {
		return nil
	}
	return &lastHour{t}
}

// Headline is the result in one sentence. The counters before the first recorded request are unknown, so a number
// may be a range: from the effect with empty counters to about the largest effect with fuller ones.
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

// Uncertain returns a sentence about the unknown counters before the first recorded request, or "".
func (l *lastHour) Uncertain() string {
	if l.Change == l.Most {
		return ""
	}
	return "A range starts with the effect from empty counters. Its end is about the most, with counters from before the first request."
}

// Old returns a sentence about recorded requests that the present policy decides differently now, or "".
func (l *lastHour) Old() string {
	if l.Differs == 0 {
		return ""
	}
	return fmt.Sprintf("The policy in force decides %s differently from what happened, because counters are older or shared, or the policy has changed since.", words.Counted(l.Differs, "request"))
}

// upTo returns a count, or a range from n to most if most is larger.
func upTo(n, most int64) string {
	if n == most {
		return number(n)
	}
	return number(n) + " to " + number(most)
}
