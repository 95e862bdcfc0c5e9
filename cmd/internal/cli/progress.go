package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/schollz/progressbar/v3"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
)

// progressAfter is the time after which the bar appears.
const progressAfter = 500 * time.Millisecond

// showProgress returns a [feed.Options.Progress] that draws a bar on w, or nil if w is not a terminal. It also
// returns a function that removes the bar: call it before writing anything else.
func showProgress(w io.Writer) (show func(feed.Progress), end func()) {
	f := command.Terminal(w)
	if f == nil {
		return nil, func() {}
	}
	begin := time.Now()
	var bar *progressbar.ProgressBar
	show = func(p feed.Progress) {
		took := time.Since(begin)
		if bar == nil {
			if took < progressAfter {
				return
			}
			bar = newBar(f, p.Total)
		}
		if p.Total > 0 {
			// Never show 100 %: the last requests have been read, but not decided yet.
			p.Done = min(p.Done, p.Total-1)
		}
		_ = bar.Set64(p.Done) // replay continues even if the terminal is closed
		bar.Describe(fmt.Sprintf("%s lines, %s/s", rounded(float64(p.Lines)), rounded(float64(p.Lines)/took.Seconds())))
	}
	return show, func() {
		if bar != nil {
			_ = bar.Clear()
			bar = nil
		}
	}
}

// newBar returns a bar that counts bytes. It shows the time left, or the elapsed time if the total is unknown.
func newBar(f *os.File, total int64) *progressbar.ProgressBar {
	if total == 0 {
		total = -1
	}
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(f),
		progressbar.OptionShowBytes(true),
		progressbar.OptionShowCount(),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionSetPredictTime(total > 0),
		progressbar.OptionFullWidth(),
		progressbar.OptionSetSpinnerChangeInterval(0), // another value starts a goroutine
		progressbar.OptionSetTheme(progressbar.ThemeASCII),
	)
}

// rounded returns a short form of a number: 950, 12.3 k, 4.5 M.
func rounded(n float64) string { return strings.TrimSpace(humanize.SIWithDigits(n, 1, "")) }
