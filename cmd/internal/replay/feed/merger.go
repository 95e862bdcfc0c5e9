package feed

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"
)

// stream is a file as the merger sees it.
type stream struct {
	*source
	rank   int   // the position among the files, by the times of their first requests
	latest int64 // the latest time so far
	bound  int64 // no request before this time will come
	block  int   // the size of a block
	lines  int64
	out    chan *block
	err    error // the error that ended the stream, once the channel out is closed
}

// run has the remaining entries of a block, in the order of time.
type run struct {
	rest []*Entry
	seq  int64 // the number of the block
	*block
	stream *stream
}

// compare is negative if r comes before s.
func (r *run) compare(s *run) int {
	return cmp.Or(cmp.Compare(r.rest[0].Time, s.rest[0].Time), r.tie(s))
}

// tie is negative if, of two entries with the same time, the one of r comes first.
func (r *run) tie(s *run) int {
	return cmp.Or(cmp.Compare(r.stream.rank, s.stream.rank), cmp.Compare(r.seq, s.seq))
}

// merger puts the requests of all files in one order. The order depends only on the files, and not on speed: the
// merger always continues with the file that is furthest behind.
type merger struct {
	size     sizes
	emit     func(*Batch) error
	open     func(s *stream, ahead int)
	progress func(force bool)
	stats    Stats

	waiting    []*stream // not yet open, by rank
	active     []*stream
	runs       []run // sorted: the last run is the earliest
	seq        int64
	held       int   // memory of the waiting entries
	clock      int64 // time of the latest request that was handed on
	batch      *Batch
	progressAt time.Time
}

func (m *merger) run(ctx context.Context, procs int) error {
	for {
		s := m.behind()
		if s == nil {
			break
		}
		if err := m.release(s.bound); err != nil {
			return err
		}
		if s.out == nil {
			m.start(s, procs)
			continue
		}
		b, err := s.next(ctx)
		switch {
		case err != nil:
			return err
		case b == nil:
			if err := m.end(s); err != nil {
				return err
			}
		default:
			m.add(s, b)
		}
		m.progress(false)
	}
	if err := m.release(math.MaxInt64); err != nil {
		return err
	}
	if err := m.flush(); err != nil {
		return err
	}
	m.stats.To = max(m.clock, m.stats.From)
	return nil
}

// wait puts the files to read into waiting.
func (m *merger) wait(sources []*source) {
	for _, s := range sources {
		m.waiting = append(m.waiting, &stream{source: s, latest: math.MinInt64 / 2, bound: s.earliest(m.size.window)})
	}
	slices.SortStableFunc(m.waiting, func(a, b *stream) int { return cmp.Compare(a.first, b.first) })
	for i, s := range m.waiting {
		s.rank = i
	}
}

// behind returns the file that may have the earliest next request, or nil if all have ended.
func (m *merger) behind() *stream {
	var first *stream
	for _, s := range m.active {
		if first == nil || s.bound < first.bound {
			first = s
		}
	}
	if len(m.waiting) > 0 && (first == nil || m.waiting[0].bound < first.bound) {
		return m.waiting[0]
	}
	return first
}

// start opens the first waiting file. If many files are open, each has less memory.
func (m *merger) start(s *stream, procs int) {
	m.waiting = m.waiting[1:]
	m.active = append(m.active, s)
	const least = 32 << 10
	s.block = min(m.size.block, max(least, m.size.memory/16/len(m.active)))
	m.open(s, max(1, 2*procs/len(m.active)))
}

// next returns the next block after it has been parsed, or nil at the end.
func (s *stream) next(ctx context.Context) (*block, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case b, ok := <-s.out:
		if !ok {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-b.done:
			return b, nil
		}
	}
}

func (m *merger) end(s *stream) error {
	m.active = slices.DeleteFunc(m.active, func(a *stream) bool { return a == s })
	if broken(s.err) {
		s.file.Broken = s.err.Error()
		return nil
	}
	if s.err != nil {
		return named(s.name, s.err)
	}
	return nil
}

// add adds the runs and the statistics of a parsed block.
func (m *merger) add(s *stream, b *block) {
	st := &m.stats
	for _, u := range b.unread[:min(len(b.unread), shown-len(st.Unread))] {
		st.Unread = append(st.Unread, Unread{s.name, s.lines + u.line + 1, string(u.text), u.why.Error()})
	}
	s.lines += b.lines
	s.file.Bytes += int64(b.size)
	if b.format != nil {
		s.file.Format, s.file.Tells = b.format.Name, b.format.Tells
	}
	st.Lines += b.lines
	st.Skipped += b.skipped
	st.Unreadable += b.unreadable
	if len(b.order) == 0 {
		b.drop()
		return
	}
	window := m.size.window.Microseconds()
	st.Late += b.settle(s.latest, window)
	s.latest = max(s.latest, b.to)
	s.bound = s.latest - window
	m.seq++
	m.held += b.cost(s.block)
	m.put(run{b.order, m.seq, b, s})
}

// release hands on the entries that are earlier than the time bound. While too much memory is held, it hands on
// more.
func (m *merger) release(bound int64) error {
	for len(m.runs) > 0 {
		limit := bound
		if m.held > m.size.memory {
			limit = math.MaxInt64
		}
		last := len(m.runs) - 1
		r := m.runs[last]
		if r.rest[0].Time >= limit {
			return nil
		}
		m.runs = slices.Delete(m.runs, last, last+1)
		n := r.ahead(limit, m.runs)
		if err := m.hand(r.block, r.rest[:n]); err != nil {
			return err
		}
		if r.rest = r.rest[n:]; len(r.rest) > 0 {
			m.put(r)
			continue
		}
		m.held -= r.cost(r.stream.block)
		r.drop()
	}
	return nil
}

// put inserts a run in order.
func (m *merger) put(r run) {
	at, _ := slices.BinarySearchFunc(m.runs, &r, func(s run, r *run) int { return r.compare(&s) })
	m.runs = slices.Insert(m.runs, at, r)
}

// ahead returns the number of entries of r that are earlier than the time limit and come before the entries of the
// other runs. It is at least one.
func (r *run) ahead(limit int64, others []run) int {
	if len(others) > 0 {
		next := &others[len(others)-1]
		if at := next.rest[0].Time; at < limit {
			limit = at
			if r.tie(next) < 0 {
				limit++
			}
		}
	}
	if r.to < limit {
		return len(r.rest)
	}
	n := 1
	for n < len(r.rest) && r.rest[n].Time < limit {
		n++
	}
	return n
}

// hand puts entries of a block into batches, and hands on those that are full.
func (m *merger) hand(b *block, entries []*Entry) error {
	if m.clock == math.MinInt64 {
		m.stats.From = entries[0].Time
	}
	for _, e := range entries {
		if e.Time >= m.clock {
			break // the entries after it are later, too
		}
		e.Time = m.clock
		m.stats.Late++
	}
	m.clock = entries[len(entries)-1].Time
	m.stats.Requests += int64(len(entries))
	for len(entries) > 0 {
		if m.batch == nil {
			m.batch = batches.Get().(*Batch)
		}
		if !slices.Contains(m.batch.blocks, b) {
			b.refs.Add(1)
			m.batch.blocks = append(m.batch.blocks, b)
		}
		n := min(len(entries), m.size.batch-len(m.batch.Entries))
		m.batch.Entries = append(m.batch.Entries, entries[:n]...)
		if entries = entries[n:]; len(m.batch.Entries) == m.size.batch {
			if err := m.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *merger) flush() error {
	b := m.batch
	if b == nil {
		return nil
	}
	m.batch = nil
	return m.emit(b)
}
