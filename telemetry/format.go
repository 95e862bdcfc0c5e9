package telemetry

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
)

// clock formats a time for a sentence of the view.
func (v *View) clock(at time.Time) string {
	layout := "15:04"
	if v.At.Sub(at) > 20*time.Hour {
		layout = "2 Jan 15:04"
	}
	return at.UTC().Format(layout) + " UTC"
}

// plain makes a text from outside safe and short enough for a sentence.
func plain(s string) string { return printable.Text(s, 120) }

// decimal formats a rate: as a whole number from 10 on, with one decimal from 1 to 10, and with one digit below 1.
func decimal(f float64) string {
	switch {
	case f >= 9.95:
		return grouped(uint64(math.Round(f)))
	case f >= 0.95:
		return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
	case f <= 0:
		return "0"
	}
	return strconv.FormatFloat(f, 'g', 1, 64)
}

// percent formats a fraction. A small fraction is never shown as 0 %, and a large one never as 100 %.
func percent(f float64) string {
	p := 100 * f
	switch {
	case p <= 0:
		return "0 %"
	case p < 0.1:
		return "less than 0.1 %"
	case p < 9.95:
		return strings.TrimSuffix(strconv.FormatFloat(p, 'f', 1, 64), ".0") + " %"
	case p < 100 && p > 99:
		return "99 %"
	}
	return strconv.FormatFloat(p, 'f', 0, 64) + " %"
}

// grouped formats a number with a comma, or a large number in millions (M) or billions (G).
func grouped(n uint64) string {
	switch {
	case n >= 1e9:
		return short(float64(n)/1e9) + " G"
	case n >= 1e6:
		return short(float64(n)/1e6) + " M"
	case n >= 1000:
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	return strconv.FormatUint(n, 10)
}

func short(f float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0")
}

// number formats a number with a noun in singular or plural.
func number(n uint64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return grouped(n) + " " + what + "s"
}

// age formats the time since an event.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d.Seconds())) + " s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d.Minutes())) + " min"
	}
	return strconv.Itoa(int(d.Hours())) + " h"
}
