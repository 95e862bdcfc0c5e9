package logging

import (
	"bufio"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/command"
)

// Logging does not wait for a slow reader, and the number of dropped lines is logged.
func TestLogBlocks(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	log, end := New(out, command.Level{})
	const lines = 5000
	text := strings.Repeat("x", 1000)
	for i := range lines {
		log.Info(text, "line", i)
	}
	end()
	// When the reader continues, it gets the first lines, and then the number of dropped lines.
	read, missing := 0, false
	scanner := bufio.NewScanner(in)
	for scanner.Scan() && !missing {
		if missing = strings.Contains(scanner.Text(), "log lines dropped"); !missing {
			read++
		}
	}
	if !missing || read < 1 || read > maxLines {
		t.Errorf("%d of %d lines come before the one about dropped lines: %v", read, lines, missing)
	}
}

// All lines that were logged before the end are written.
func TestLogEnds(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, end := New(f, command.Level{})
	for range 300 {
		log.Info("line")
	}
	end()
	written, err := os.ReadFile(f.Name())
	if n := strings.Count(string(written), "\n"); err != nil || n != 300 {
		t.Errorf("%d lines were written: %v", n, err)
	}
}

// A duration in a line is written as people write it, not as a number of nanoseconds.
func TestLogDuration(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	log, end := New(f, command.Level{})
	log.Info("line", "wait", 15*time.Minute, "took", 1500*time.Millisecond, "day", 24*time.Hour, "most", 90*time.Minute)
	end()
	if written, err := os.ReadFile(f.Name()); err != nil || !strings.Contains(string(written), `"wait":"15m","took":"1.5s","day":"24h","most":"1h30m"`) {
		t.Errorf("%s, %v", written, err)
	}
}
