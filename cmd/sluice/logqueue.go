package main

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// logQueue writes lines on a goroutine of its own, so that nobody waits for whoever reads the log: a
// pipe that is full would otherwise hold up requests, and the end of the process. Of lines for
// which there is no room it tells how many there were.
type logQueue struct {
	out   io.Writer
	lines chan []byte
	lost  atomic.Uint64
	end   chan struct{} // closed: write what is left
	ended chan struct{}
}

const (
	maxLogLines = 1024 // that wait
	// logEndWithin is the longest wait for the reader of a log at the end.
	logEndWithin = time.Second
)

func newLogQueue(out io.Writer) *logQueue {
	q := &logQueue{out: out, lines: make(chan []byte, maxLogLines), end: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write takes a line, and never fails.
func (q *logQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.lost.Add(1)
	}
	return len(line), nil
}

func (q *logQueue) run() {
	defer close(q.ended)
	for {
		select {
		case line := <-q.lines:
			q.write(line)
			continue
		default:
		}
		select {
		case line := <-q.lines:
			q.write(line)
		case <-q.end:
			if len(q.lines) == 0 {
				return
			}
		}
	}
}

func (q *logQueue) write(line []byte) {
	_, _ = q.out.Write(line) // there is nobody to tell
	if n := q.lost.Swap(0); n > 0 {
		slog.New(slog.NewJSONHandler(q.out, nil)).Warn("lines left out of the log: whoever reads it is too slow", "lines", n)
	}
}

// close writes what is left, if that does not take long.
func (q *logQueue) close() {
	close(q.end)
	select {
	case <-q.ended:
	case <-time.After(logEndWithin):
	}
}
