package feed

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

const (
	shown      = 10  // the maximum number of unreadable lines that are kept
	shownBytes = 200 // the maximum number of bytes that are kept of such a line

	entryBytes = int(unsafe.Sizeof(Entry{}))
	// The entries of lines longer than huge are not reused, because the entries' own memory may be as large.
	huge = 4 << 10
	// keepBlock is the largest buffer that is used again.
	keepBlock = 512 << 10
)

var (
	errLong     = errors.New("the line is too long")
	errNoFormat = errors.New("the file starts with only comments, so its format is unknown")
	errRefused  = errors.New("it follows an unreadable directive")
)

// block has some whole lines of a file, and their entries.
type block struct {
	format *accesslog.Format // nil if the sample of the file has only comments
	// refuse, if not nil, is the reason why no line is parsed, and last why the last line is not parsed.
	refuse, last error
	buf, data    []byte
	size         int // the size of the data in the file

	lines, skipped, unreadable int64
	unread                     []unread // the first unreadable lines

	entries []Entry // in the order of the lines
	order   []*Entry
	long    []int // indexes of entries of huge lines
	from    int64 // the time of the earliest entry
	to      int64 // the time of the latest entry

	done chan struct{} // receives a value when the block has been parsed
	refs atomic.Int32  // users of the block
}

// unread is an unreadable line of a block.
type unread struct {
	line int64 // counted from 0
	text []byte
	why  error
}

// parser parses blocks until ctx ends.
func parser(ctx context.Context, work <-chan *block, longest int, mark func(*Entry)) {
	for {
		select {
		case <-ctx.Done():
			return
		case b := <-work:
			b.parse(longest, mark)
			b.done <- struct{}{}
		}
	}
}

func (b *block) parse(longest int, mark func(*Entry)) {
	n := 0
	directives := b.format == nil || b.format.Directives()
	for data := b.data; len(data) > 0; b.lines++ {
		line := data
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			line, data = data[:end], data[end+1:]
		} else {
			data = nil
		}
		if len(line) > 0 && line[len(line)-1] == '\r' {
			line = line[:len(line)-1]
		}
		var err error
		switch {
		case b.last != nil && len(data) == 0:
			err = b.last
		case len(line) > longest:
			err = errLong
		case directives && (len(line) == 0 || line[0] == '#'):
			err = accesslog.ErrSkip
		case b.refuse != nil:
			err = b.refuse
		case b.format == nil:
			err = errNoFormat
		default:
			if n == len(b.entries) {
				b.entries = append(b.entries, Entry{})
			}
			if len(line) > huge {
				b.long = append(b.long, n)
			}
			if err = b.format.Parse(line, &b.entries[n].Entry); err == nil {
				if mark != nil {
					mark(&b.entries[n])
				}
				n++
			}
		}
		switch {
		case err == nil:
		case err == accesslog.ErrSkip: // ErrSkip is never wrapped
			b.skipped++
		default:
			b.unreadable++
			if len(b.unread) < shown {
				b.unread = append(b.unread, unread{b.lines, line[:min(len(line), shownBytes)], err})
			}
		}
	}
	b.arrange(n)
}

// arrange sorts the first n entries by time, unless they are sorted already.
func (b *block) arrange(n int) {
	b.order = b.order[:0]
	sorted, last := true, int64(math.MinInt64)
	for i := range b.entries[:n] {
		e := &b.entries[i]
		b.order = append(b.order, e)
		sorted = sorted && e.Time >= last
		last = e.Time
	}
	if !sorted {
		sortByTime(b.order)
	}
	if n > 0 {
		b.from, b.to = b.order[0].Time, b.order[n-1].Time
	}
}

// sortByTime sorts entries by time. Entries with the same time keep their order. The lines of a server's log are
// nearly in order: each moves before at most a few other lines. For such lines, insertion sort is the fastest.
func sortByTime(entries []*Entry) {
	moves := 16 * len(entries) // a bound, because a shuffled log would take far too many moves
	for i := 1; i < len(entries); i++ {
		e, at := entries[i], i
		for at > 0 && entries[at-1].Time > e.Time {
			entries[at] = entries[at-1]
			at--
		}
		entries[at] = e
		if moves -= i - at; moves < 0 {
			slices.SortStableFunc(entries, func(x, y *Entry) int { return cmp.Compare(x.Time, y.Time) })
			return
		}
	}
}

// settle changes the time of late requests, and returns their number. A request is late if an earlier line has a
// time that is later by more than the parameter window; its time becomes the latest time of the lines before it.
// The parameter latest is the latest time before the block.
func (b *block) settle(latest, window int64) (late int64) {
	if b.from >= max(latest, b.to)-window {
		return 0
	}
	n := len(b.order)
	for i := range b.entries[:n] {
		if e := &b.entries[i]; e.Time < latest-window {
			e.Time = latest
			late++
		} else {
			latest = max(latest, e.Time)
		}
	}
	if late > 0 {
		b.arrange(n)
	}
	return late
}

// cost returns the memory that a block takes while it waits. It depends only on the contents of the file, so that
// the same file always gives the same result.
func (b *block) cost(size int) int { return max(size, len(b.data)) + len(b.order)*entryBytes }

// blocks has blocks for reuse.
var blocks = sync.Pool{New: func() any { return &block{done: make(chan struct{}, 1)} }}

// newBlock returns a block with one user.
func newBlock() *block {
	b := blocks.Get().(*block)
	b.refs.Store(1)
	return b
}

// drop releases the block for one of its users.
func (b *block) drop() {
	if b.refs.Add(-1) > 0 {
		return
	}
	for _, i := range b.long {
		b.entries[i] = Entry{}
	}
	if cap(b.buf) > keepBlock {
		b.buf = nil
	}
	clear(b.unread)
	*b = block{buf: b.buf[:0], unread: b.unread[:0], entries: b.entries, order: b.order[:0], long: b.long[:0], done: b.done}
	blocks.Put(b)
}
