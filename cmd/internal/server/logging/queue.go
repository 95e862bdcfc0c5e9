package logging

import (
	"bytes"
	"io"
	"log/slog"
	"sync/atomic"
	"time"
)

// queue writes lines on its own goroutine, because a full pipe would otherwise block requests and the end of the
// process. The queue drops lines that do not fit, and logs the number of dropped lines.
type queue struct {
	out   io.Writer
	lines chan []byte
	lost  atomic.Uint64
	end   chan struct{} // closed by close
	ended chan struct{} // closed when all lines are written
}

const (
	maxLines = 1024 // the maximum number of lines that wait to be written
	// closeTimeout bounds the time for which close waits for the reader of the log.
	closeTimeout = time.Second
)

func newQueue(out io.Writer) *queue {
	q := &queue{out: out, lines: make(chan []byte, maxLines), end: make(chan struct{}), ended: make(chan struct{})}
	go q.run()
	return q
}

// Write adds a line to the queue. It never fails.
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
	_, _ = q.out.Write(line) // an error could not be logged anywhere
	if n := q.lost.Swap(0); n > 0 {
		slog.New(slog.NewJSONHandler(q.out, nil)).Warn("log lines dropped: the reader of the log is too slow", "lines", n)
	}
}

// close waits at most closeTimeout until the remaining lines are written.
func (q *queue) close() {
	close(q.end)
	select {
	case <-q.ended:
	case <-time.After(closeTimeout):
	}
}
