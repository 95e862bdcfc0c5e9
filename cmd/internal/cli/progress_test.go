//go:build unix

package cli

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"

	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
)

func TestProgressOnTerminal(t *testing.T) {
	keys, own, err := pty.Open()
	if err != nil {
		t.Skip("no terminals on this system:", err)
	}
	if err := pty.Setsize(own, &pty.Winsize{Rows: 24, Cols: 100}); err != nil {
		t.Fatal(err)
	}
	output := make(chan string)
	go func() {
		text, _ := io.ReadAll(keys) // ends with an error once the terminal is closed
		output <- string(text)
	}()
	synctest.Test(t, func(*testing.T) {
		show, end := showProgress(own)
		show(feed.Progress{Lines: 1, Done: 1, Total: 1 << 30})
		time.Sleep(2 * time.Second)
		show(feed.Progress{Lines: 3_000_000, Done: 1 << 28, Total: 1 << 30})
		time.Sleep(2 * time.Second)
		show(feed.Progress{Lines: 6_000_000, Done: 1 << 30, Total: 1 << 30})
		end()
		show, end = showProgress(own) // as for standard input, which has no known length
		time.Sleep(time.Second)
		show(feed.Progress{Lines: 950, Done: 1 << 20})
		end()
	})
	if err := own.Close(); err != nil {
		t.Fatal(err)
	}
	text := <-output
	_ = keys.Close()
	for _, want := range []string{`3 M lines, 1\.5 M/s`, `6 M lines, 1\.5 M/s`, `99% .*1\.0 GiB`, `\[\d+s:\d+s\]`, `950 lines, 950/s`, `\(1\.0 MiB`} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s is missing in %q", want, text)
		}
	}
	if strings.Contains(text, "\n") {
		t.Errorf("the bar leaves lines on the terminal: %q", text)
	}
	last := text[strings.LastIndex(strings.TrimRight(text, "\r"), "\r")+1:]
	if strings.TrimSpace(strings.ReplaceAll(last, "\x1b[K", "")) != "" {
		t.Errorf("the bar is not removed at the end: %q", last)
	}
}

func TestProgressElsewhere(t *testing.T) {
	var out bytes.Buffer
	show, end := showProgress(&out)
	if end(); show != nil || out.Len() > 0 {
		t.Error("the bar is shown without a terminal")
	}
}
