// Package feed returns the requests of access logs in the order of their time. Packages replay and
// recommend are above it, package accesslog is below.
//
// Each file is read, decompressed and cut into blocks of lines by a goroutine of its own, the blocks are
// parsed on all processors, and the caller's goroutine puts their requests in order and hands them on.
// Memory is bounded by the window and not by the logs: blocks are used again, and what is read ahead
// waits for the caller.
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

// Window is how much later than its place in a file a request may be found and still be put in order.
const Window = 5 * time.Minute

// Options are how logs are read.
type Options struct {
	Format *accesslog.Format // nil recognizes that of each file by its first lines
	Parse  accesslog.Options
	// Stdin is what a file named "-" is. A read from it that blocks does not end with the context;
	// Read returns all the same.
	Stdin io.Reader
	// Begin, if not nil, is called once before the first batch with what the files are, as their first
	// lines tell. Its error ends the reading.
	Begin func([]File) error
	// Mark, if not nil, is called after Begin for each goroutine that parses, and what it returns with each
	// entry, while that is in the processor's caches: what there is to work out about one goes here.
	Mark func() func(*Entry)
	// Progress, if not nil, is called now and then from the goroutine of Read, and at the end.
	Progress func(Progress)
}

// Progress is how far the reading is.
type Progress struct {
	Lines       int64
	Done, Total int64 // bytes of the files as they are on disk; Total is 0 where it is not known
}

// Stats are what was read.
type Stats struct {
	Files      []File
	Lines      int64 // all
	Requests   int64 // that were handed on
	Skipped    int64 // lines that tell of no request
	Unreadable int64
	Unread     []Unread // the first of these
	// Late are requests that came more than the window after later ones, or after more lines than are
	// held. They count at the time of the latest before them.
	Late     int64
	From, To int64 // times of the first and the last request in microseconds since the Unix epoch
}

// File is a log that was read.
type File struct {
	Name   string          `json:"name"`
	Format string          `json:"format"` // empty where there was no line
	Bytes  int64           `json:"bytes"`  // after decompression
	Tells  accesslog.Tells `json:"tells"`
	// Broken is the reason why the rest of a compressed file could not be read: it is cut off or damaged.
	Broken string `json:"broken,omitempty"`
}

// Unread is a line that does not follow the format.
type Unread struct {
	File string `json:"file"`
	Line int64  `json:"line"` // from 1
	Text string `json:"text"` // at most 200 bytes of it, as they are
	Why  string `json:"why"`
}

// Entry is a request, and what [Options.Mark] has noted about it.
type Entry struct {
	Mark
	accesslog.Entry
}

// Mark is the client of a request.
type Mark struct {
	Peer  netip.Addr
	Named bool  // the address is made up for a name
	Part  uint8 // of those into which clients are divided
}

// Batch is some requests, in the order of their time. Its receiver gives it back with Release, on any goroutine,
// and must not use its entries afterwards.
type Batch struct {
	Entries []*Entry
	blocks  []*block // that these are in
}

// batches are those to use again.
var batches = sync.Pool{New: func() any { return new(Batch) }}

// Release gives the memory of the batch back.
func (b *Batch) Release() {
	for _, used := range b.blocks {
		used.drop()
	}
	clear(b.blocks)
	b.Entries, b.blocks = b.Entries[:0], b.blocks[:0]
	batches.Put(b)
}

// sizes are what tests make small.
type sizes struct {
	block  int           // bytes that are read at once
	line   int           // the longest line
	window time.Duration // of log time
	memory int           // bytes of lines and entries that wait for their turn
	batch  int           // entries
}

// An entry is larger than most lines, so that the memory is enough for some 50 MiB of these.
var usual = sizes{block: 256 << 10, line: 1 << 20, window: Window, memory: 128 << 20, batch: 4096}

// Read reads the files, merges them by time, and calls f with all requests in order, from its own
// goroutine. Requests of one time are in the order of their file, and of files, the one that begins
// earlier is first. It ends early with the error of f or of ctx.
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
			return m.stats, errors.New("standard input can be read only once: name - once")
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
	// All are looked at before the first is read, so that hours of work do not end at a missing one.
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
		if o.Progress == nil || !force && time.Since(m.told) < tellEvery {
			return
		}
		m.told = time.Now()
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

// tellEvery is the interval between reports of progress.
const tellEvery = 100 * time.Millisecond

// named adds the file to an error without one.
func named(name string, err error) error {
	if name == "-" {
		name = "standard input"
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("%s: %w", name, err)
}
