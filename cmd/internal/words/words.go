// Package words formats numbers of things, lengths of time, paragraphs and comments for people. The commands import
// it; it imports package internal/printable.
package words

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dustin/go-humanize/english"
)

// Counted formats a number of things: "1 request", "2,000 requests".
func Counted[N int | int64](n N, thing string) string { return english.Plural(int(n), thing, "") }

// units has the units of time, the largest first.
var units = [...]struct {
	name string
	of   time.Duration
}{{"day", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}

// Span formats a length of time, rounded, in its largest unit. If that is fewer than ten, it adds the next unit: "1
// h 20 min", "14 h", "3 days".
func Span(d time.Duration) string {
	switch {
	case d <= 0:
		return "no time"
	case d < time.Second:
		return "less than a second"
	}
	for i, u := range units {
		rest := units[min(i+1, len(units)-1)]
		switch fine := d.Round(rest.of); {
		case fine < u.of:
			continue
		case fine >= 10*u.of:
			d = d.Round(u.of)
		default:
			d = fine
		}
		text := fmt.Sprintf("%d %s", d/u.of, u.name)
		if u.name == "day" && d/u.of > 1 {
			text += "s"
		}
		if over := d % u.of; over > 0 {
			text += fmt.Sprintf(" %d %s", over/rest.of, rest.name)
		}
		return text
	}
	return "" // not reached: d is at least a second
}

// Wrap divides text into lines of at most width characters, if possible between words. A width below 10 is treated
// as 10.
func Wrap(text string, width int) (lines []string) {
	width = max(10, width)
	line := ""
	for _, word := range split(text) {
		for room := width; utf8.RuneCountInString(word) > room; { // a word that is longer than a line
			if line != "" {
				lines, line = append(lines, line), ""
			}
			runes := []rune(word)
			lines, word = append(lines, string(runes[:room])), string(runes[room:])
		}
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	if line != "" || len(lines) == 0 {
		lines = append(lines, line)
	}
	return lines
}

// split divides text into words. It keeps a unit together with its number.
func split(text string) (all []string) {
	for _, word := range strings.Fields(text) {
		switch strings.TrimRight(word, ".,;:)") {
		case "%", "day", "days", "h", "min", "s":
			if n := len(all); n > 0 {
				all[n-1] += " " + word
				continue
			}
		}
		all = append(all, word)
	}
	return all
}
