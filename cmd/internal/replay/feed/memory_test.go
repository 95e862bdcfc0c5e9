package feed

import (
	"bufio"
	"io"
	"runtime"
	"testing"
	"time"
)

// paced is a log that is generated while it is read: twenty lines for each second of log time, some of them late.
type paced struct {
	rest, made int64
	line       []byte
}

func (p *paced) Read(b []byte) (int, error) {
	if len(p.line) == 0 {
		if p.rest == 0 {
			return 0, io.EOF
		}
		at := day.Add(time.Duration(p.made/20) * time.Second)
		if p.made%11 == 0 {
			at = at.Add(-time.Minute)
		}
		p.made++
		p.rest--
		p.line = append(append(p.line, line(at, int(p.made))...), '\n')
	}
	n := copy(b, p.line)
	p.line = append(p.line[:0], p.line[n:]...)
	return n, nil
}

// Reading the second half of a log takes hardly more memory than the first half, and less than one allocation for every
// two lines.
func TestMemoryDoesNotGrow(t *testing.T) {
	const lines = int64(200_000)
	o := combinedFormat(t)
	o.Stdin = bufio.NewReaderSize(&paced{rest: lines}, 1<<16)
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
	// Subtract the test's own allocations for each line.
	own := testing.AllocsPerRun(1000, func() { line(day, 12345) })
	if each := float64(end.Mallocs-half.Mallocs)/float64(lines-lines/2) - own; each > 0.5 {
		t.Errorf("%.2f allocations for each line", each)
	}
}
