package feed

import (
	"io"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"
)

// lineCount is how many lines the log has whose memory is measured: SLUICE_REPLAY_LINES may say more, such
// as 20 million, which are 2 GB.
func lineCount(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("SLUICE_REPLAY_LINES")
	if text == "" {
		return 400_000
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// log is made as it is read: some lines for each second of log time, a few of them late.
type log struct {
	rest, made int64
	lines      []byte
}

func (l *log) Read(p []byte) (int, error) {
	for len(l.lines) == 0 {
		if l.rest == 0 {
			return 0, io.EOF
		}
		at := day.Add(time.Duration(l.made/20) * time.Second)
		for range min(l.rest, 20) {
			l.made++
			l.rest--
			if l.made%11 == 0 {
				at = at.Add(-time.Minute)
			}
			l.lines = append(append(l.lines, line(at, int(l.made))...), '\n')
		}
	}
	n := copy(p, l.lines)
	l.lines = append(l.lines[:0], l.lines[n:]...)
	return n, nil
}

// The second half of a log takes no memory that the first has not, and hardly a line is allocated for.
func TestMemoryDoesNotGrow(t *testing.T) {
	lines := lineCount(t)
	o := combinedFormat(t)
	o.Stdin = &log{rest: lines}
	var half, end runtime.MemStats
	var seen int64
	stats, err := Read(t.Context(), []string{"-"}, o, func(b *Batch) error {
		before := seen
		seen += int64(len(b.Entries))
		b.Release()
		if before < lines/2 && seen >= lines/2 {
			runtime.ReadMemStats(&half)
		}
		return nil
	})
	if err != nil || stats.Requests != lines || stats.Late != 0 {
		t.Fatalf("%d requests, %d late: %v", stats.Requests, stats.Late, err)
	}
	runtime.ReadMemStats(&end)
	t.Logf("%d MiB of heap at half of %d lines, %d MiB at the end", half.HeapSys>>20, lines, end.HeapSys>>20)
	if end.HeapSys > half.HeapSys+half.HeapSys/4+4<<20 {
		t.Errorf("the heap grows from %d to %d bytes", half.HeapSys, end.HeapSys)
	}
	// The test itself allocates for each line that it makes.
	own := testing.AllocsPerRun(1000, func() { line(day, 12345) })
	if each := float64(end.Mallocs-half.Mallocs)/float64(lines-lines/2) - own; each > 0.5 {
		t.Errorf("%.2f allocations for each line", each)
	}
}
