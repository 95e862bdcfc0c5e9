// Package show renders the report of a replay, as text for a terminal and as an HTML page. All text in a report may
// come from an attacker, so both forms escape it. Package cli imports it; it imports package replay.
package show

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
)

// share formats n/all as a percentage, with enough digits to distinguish it from 0 % and 100 %.
func share(n, all int64) string {
	if all == 0 {
		return "–"
	}
	p := 100 * float64(n) / float64(all)
	switch {
	case n == 0:
		return "0 %"
	case n == all:
		return "100 %"
	case p < 0.01:
		return "< 0.01 %"
	case p < 10:
		return fmt.Sprintf("%.2g %%", p)
	case p > 99.9:
		return "> 99.9 %"
	}
	return fmt.Sprintf("%.1f %%", p)
}

// when formats a time in UTC.
func when(t time.Time) string {
	if t.IsZero() {
		return "–"
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// maxMarks is the maximum number of marks, such as accents, on a character. More marks would reach into the lines
// above and below.
const maxMarks = 2

// safe returns text from a log in a form that affects neither a terminal nor the lines around it, in at most
// limit characters. Characters that do not print as themselves are escaped: controls, invalid UTF-8, changes of the
// direction of text, and invisible characters.
func safe(s string, limit int) string {
	var b strings.Builder
	marks := maxMarks // a mark at the start has no character to be on
	for i, r := range s {
		if marks++; !unicode.Is(unicode.M, r) {
			marks = 0
		}
		text := string(r)
		switch _, size := utf8.DecodeRuneInString(s[i:]); {
		case r == utf8.RuneError && size == 1:
			text = fmt.Sprintf(`\x%02x`, s[i])
		case r < utf8.RuneSelf && !printable.Shows(r):
			text = strings.Trim(strconv.QuoteRune(r), "'")
		case marks > maxMarks || !printable.Shows(r):
			text = fmt.Sprintf(`\u{%x}`, r)
		}
		if limit -= utf8.RuneCountInString(text); limit < 0 {
			return b.String() + "…"
		}
		b.WriteString(text)
	}
	return b.String()
}

// noun returns the noun for one subject of a report: "client" if all rules count by the client's address.
func noun(r *replay.Report) string {
	for _, rule := range r.Rules {
		if rule.Kind == "limit" && !(len(rule.Key) == 1 && rule.Key[0] == "client_ip") {
			return "subject"
		}
	}
	return "client"
}

// headline returns the sentence that a reader wants to see first.
func headline(r *replay.Report) string {
	var watched int64
	for _, rule := range r.Rules {
		if rule.Shadow {
			watched += rule.Refused
		}
	}
	switch {
	case r.Requests == 0 && r.Unreadable > 0:
		return "No line of this log is a readable request."
	case r.Requests == 0:
		return "The log has no requests."
	case r.Refused == 0 && watched > 0:
		return fmt.Sprintf("None of %s would have been denied. Rules in shadow mode were exceeded %s.", words.Counted(r.Requests, "request"), words.Counted(watched, "time"))
	case r.Refused == 0:
		return fmt.Sprintf("None of %s would have been denied.", words.Counted(r.Requests, "request"))
	}
	text := fmt.Sprintf("This policy would have denied %s of %s (%s)", humanize.Comma(r.Refused), words.Counted(r.Requests, "request"), share(r.Refused, r.Requests))
	if r.SubjectsRefused == 0 {
		return text + "."
	}
	about := ""
	if r.Estimated {
		about = "about "
	}
	return fmt.Sprintf("%s, and %s%s of %s at least once.", text, about, humanize.Comma(r.SubjectsRefused), words.Counted(r.Subjects, noun(r)))
}

// hardness has the names of the classes of [replay.Rule.Hardness].
var hardness = [6]string{"once", "under 1 min", "1–10 min", "10–60 min", "1–24 h", "longer"}
