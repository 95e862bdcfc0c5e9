package console

import (
	"fmt"

	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

// lastHour is the effect that a change would have had on the latest requests. It is nil if requests are not
// recorded.
type lastHour struct{ *recent.Trial }

func lastHourOf(t *recent.Trial) *lastHour {
	if t == nil {
		return nil
	}
	return &lastHour{t}
}

// Headline returns the result in one sentence. The counters before the first recorded request are unknown, so a
// number may be a range. The first number assumes empty counters; the second is about the maximum if counters were
// partly used.
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
	return "The first number of a range assumes that counters were empty at the first request. The second is about the maximum if counters were partly used."
}

// Old returns a sentence about recorded requests for which the present policy leads to another decision, or "".
func (l *lastHour) Old() string {
	if l.Differs == 0 {
		return ""
	}
	return fmt.Sprintf("For %s, the policy in force leads to another decision than the one made then, because counters were older or shared, or because the policy has changed since.", words.Counted(l.Differs, "request"))
}

// upTo returns a count, or the range up to its upper bound if that is larger.
func upTo(n, most int64) string {
	if n == most {
		return number(n)
	}
	return number(n) + " to " + number(most)
}
