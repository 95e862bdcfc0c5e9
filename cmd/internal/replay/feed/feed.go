// Package feed returns the requests of access logs in the order of their time. Packages replay and recommend import
// it; it imports package accesslog.
//
// A goroutine for each file reads it, decompresses it and cuts it into blocks of lines. The blocks are parsed on
// all processors. The caller's goroutine puts the requests in order and hands them on. The memory is bounded,
// whatever the size of the logs: blocks are reused, and the goroutines that read ahead wait for the caller.
package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

// Window bounds the disorder that is corrected: a request is put in order unless a line before it has a time that is
// later by more than Window.
const Window = 5 * time.Minute

// Options configure how logs are read.
type Options struct {
	Format *accesslog.Format // nil means that the format of each file is recognized from its first lines
	Parse  accesslog.Options
	// Stdin is read for a file named "-". The function Read returns when its context ends, even if a read from Stdin
	// blocks.
	Stdin io.Reader
	// Begin, if not nil, is called before the first batch, with the files as their first lines describe them. If it
	// returns an error, Read returns this error.
	Begin func([]File) error
	// Mark, if not nil, is called after Begin for each goroutine that parses. The returned function is called with
	// each entry, while the entry is in the processor's caches. So work on single entries is cheap there.
	Mark func() func(*Entry)
	// Progress, if not nil, is called by the goroutine of Read from time to time, and at the end.
	Progress func(Progress)
}

// Progress is how much has been read.
type Progress struct {
	Lines       int64
	Done, Total int64 // bytes of the files on disk, before decompression; Total is 0 if it is unknown
}

// Stats counts what was read.
type Stats struct {
	Files      []File
	Lines      int64 // all lines
	Requests   int64 // requests that were handed on
	Skipped    int64 // lines without a request
	Unreadable int64
	Unread     []Unread // the first unreadable lines
	// Late is the number of requests that are too far out of order: an earlier line has a time that is later by more
	// than the window, or the request came after more lines than fit in memory. Such a request counts at the latest
	// time before it.
	Late     int64
	From, To int64 // the times of the first and the last request, in microseconds since the Unix epoch
}

// File is a log that was read.
type File struct {
	Name   string          `json:"name"`
	Format string          `json:"format"` // empty if the file has no line
	Bytes  int64           `json:"bytes"`  // after decompression
	Tells  accesslog.Tells `json:"tells"`
	// Broken is the reason why the rest of a compressed file could not be read, because the file is cut off or
	// damaged.
	Broken string `json:"broken,omitempty"`
}

// Unread is a line that does not follow the format.
type Unread struct {
	File string `json:"file"`
	Line int64  `json:"line"` // counted from 1
	Text string `json:"text"` // at most 200 bytes of the line, unchanged
	Why  string `json:"why"`
}

// Entry is a request, with the client that [Options.Mark] has set.
type Entry struct {
	Mark
	accesslog.Entry
}

// Mark is the client of a request.
type Mark struct {
	Peer  netip.Addr
	Named bool  // the log has a name, and the address stands for it
	Part  uint8 // the part of a replay to which the client belongs
}

// Batch has some requests, in the order of their times. Its receiver has to call Release, on any goroutine, and
// must not use the entries afterwards.
type Batch struct {
	Entries []*Entry
	blocks  []*block // the blocks of these entries
}

// batches has batches for reuse.
var batches = sync.Pool{New: func() any { return new(Batch) }}

// Release releases the memory of the batch for reuse.
func (b *Batch) Release() {
	for _, used := range b.blocks {
		used.drop()
	}
	clear(b.blocks)
	b.Entries, b.blocks = b.Entries[:0], b.blocks[:0]
	batches.Put(b)
}

// sizes has bounds that tests make small.
type sizes struct {
	block  int           // bytes of a block
	line   int           // the longest line
	window time.Duration // the window, in log time
	memory int           // bytes of waiting lines and entries
	batch  int           // entries
}

// usual has the bounds outside of tests. An entry is larger than most lines, so the memory is enough for some 50 MiB
// of lines.
var usual = sizes{block: 256 << 10, line: 1 << 20, window: Window, memory: 128 << 20, batch: 4096}

// Read reads the files, merges them by time, and calls f with all requests in order, on the caller's goroutine.
// Requests with the same time are in the order of their file; among files, the one that begins earlier comes first.
// It ends early with the error of f or of ctx.
//
// A file may be plain or compressed with gzip or zstd, under any name, and "-" is standard input. A damaged
// compressed file is read up to the damage, and sets [File.Broken].
func Read(ctx context.Context, files []string, o Options, f func(*Batch) error) (Stats, error) {
	return read(ctx, files, o, usual, f)
}

func read(ctx context.Context, files []string, o Options, size sizes, f func(*Batch) error) (Stats, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	m := &merger{size: size, emit: f, clock: math.MinInt64}
	m.stats.Files = make([]File, len(files))

	sources := make([]*source, len(files))
	defer func() {
		for _, s := range sources {
			if s != nil {
				s.shut()
			}
		}
	}()
	total, known := int64(0), true
	for i, name := range files {
		if name == "-" && slices.Contains(files[:i], name) {
			return m.stats, errors.New("standard input can be read only once: name \"-\" only once")
		}
		s, err := newSource(ctx, name, o)
		if err != nil {
			return m.stats, err
		}
		s.file = &m.stats.Files[i]
		s.file.Name = name
		sources[i] = s
		known = known && s.size >= 0
		total += s.size
	}
	if !known {
		total = 0
	}
	// All files are opened before the first is read, so that a missing file does not end hours of work.
	for _, s := range sources {
		if err := s.look(o, size); err != nil {
			return m.stats, err
		}
	}
	m.wait(sources)
	if o.Begin != nil {
		if err := o.Begin(m.stats.Files); err != nil {
			return m.stats, err
		}
	}

	procs := runtime.GOMAXPROCS(0)
	work := make(chan *block)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	for range procs {
		var mark func(*Entry)
		if o.Mark != nil {
			mark = o.Mark()
		}
		all.Go(func() { parser(ctx, work, size.line, mark) })
	}
	m.open = func(s *stream, ahead int) {
		s.out = make(chan *block, ahead)
		c := &cutter{source: s.source, block: s.block, line: size.line, format: s.format}
		all.Go(func() {
			defer close(s.out)
			s.err = c.run(ctx, s.out, work)
		})
	}
	m.progress = func(force bool) {
		if o.Progress == nil || !force && time.Since(m.progressAt) < progressEvery {
			return
		}
		m.progressAt = time.Now()
		p := Progress{Lines: m.stats.Lines, Total: total}
		for _, s := range sources {
			p.Done += s.done.Load()
		}
		o.Progress(p)
	}
	err := m.run(ctx, procs)
	if err == nil {
		m.progress(true)
	}
	return m.stats, err
}

// progressEvery is the interval between reports of progress.
const progressEvery = 100 * time.Millisecond

// named adds the name of the file to an error that does not have it.
func named(name string, err error) error {
	if name == "-" {
		name = "standard input"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
