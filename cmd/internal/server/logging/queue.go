package logging

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// queue writes lines on its own goroutine. Otherwise a full pipe would block requests, and the end of the process.
// The queue drops lines that do not fit, and logs how many.
type queue struct {
	out   io.Writer
	lines chan []byte
	lost  atomic.Uint64
	end   chan struct{} // closed by close
	ended chan struct{} // closed: all is written
}

const (
	maxLines = 1024 // that wait to be written
	// closeTimeout bounds how long close waits for the reader of the log.
	closeTimeout = time.Second
)

func newQueue(out io.Writer) *queue {
	q := &queue{out: out, lines: make(chan []byte, maxLines), end: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write takes a line, and never fails.
func (q *queue) Write(line []byte) (int, error) {
	select {
	case q.lines <- bytes.Clone(line):
	default:
		q.lost.Add(1)
	}
	return len(line), nil
}

func (q *queue) run() {
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

func (q *queue) write(line []byte) {
	_, _ = q.out.Write(line) // there is nowhere else to log an error
	if n := q.lost.Swap(0); n > 0 {
		slog.New(slog.NewJSONHandler(q.out, nil)).Warn("log lines dropped: the reader of the log is too slow", "lines", n)
	}
}

// close writes the lines that are left, for at most closeTimeout.
func (q *queue) close() {
	close(q.end)
	select {
	case <-q.ended:
	case <-time.After(closeTimeout):
	}
}
