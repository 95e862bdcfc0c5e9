package telemetry

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluicehq/sluice/internal/printable"
)

// maxNamed is the maximum number of rules that a summary names.
const maxNamed = 10

// run writes lines until the log ends. Only run waits for the handler.
func (l *refusalLog) run() {
	defer close(l.ended)
	summaries := time.NewTicker(summaryEvery)
	defer summaries.Stop()
	for {
		select {
		case line := <-l.lines:
			l.write(line)
		case now := <-summaries.C:
			l.forget(now.Add(-forgetAfter))
			l.summarize(now)
		case <-l.end:
			l.finish()
			return
		}
	}
}

// finish writes all lines that are due.
func (l *refusalLog) finish() {
	for len(l.lines) > 0 {
		l.write(<-l.lines)
	}
	now := time.Now()
	l.forget(now)
	l.summarize(now)
}

func (l *refusalLog) stop() {
	l.stopped.Store(true)
	close(l.end)
	select {
	case <-l.ended:
	case <-time.After(stopWithin): // a writer that blocks must not delay the end of the process
	}
}

// forget removes subjects without a denial since a time, and adds their left-out denials to the summary.
func (l *refusalLog) forget(since time.Time) {
	for i := range l.subjects {
		set := &l.subjects[i]
		var gone [setSize]refusedSubject
		set.mu.Lock()
		for j := range set.entries {
			if p := &set.entries[j]; p.hash != 0 && p.at <= since.UnixNano() {
				gone[j], *p = *p, refusedSubject{}
			}
		}
		set.mu.Unlock()
		for j := range gone {
			l.missed(gone[j])
		}
	}
}

func (l *refusalLog) write(r *refusalLine) {
	message := "denied"
	switch {
	case r.Marked:
		message = "marked"
	case r.Shadow:
		message = "would deny"
	}
	record := slog.NewRecord(r.At, slog.LevelInfo, message, 0)
	text := func(name, value string) {
		if value != "" {
			record.AddAttrs(slog.String(name, value))
		}
	}
	text("rule", r.Rule)
	text("limit", r.Limit)
	text("limit_name", r.LimitName)
	text("from", r.From)
	text("because", r.Because)
	text("class", r.Class)
	text("missing", r.Missing)
	text("subject", r.Subject)
	if r.Wait >= 0 {
		record.AddAttrs(slog.Int64("wait", r.Wait))
	}
	text("address", r.Address)
	text("door", r.Door)
	text("method", r.Method)
	text("host", r.Host)
	text("path", r.Path)
	text("request_id", r.RequestID)
	text("trace_id", r.TraceID)
	if r.leftOut > 0 {
		record.AddAttrs(slog.Uint64("left_out", r.leftOut))
	}
	_ = l.handler.Handle(r.ctx, record) // an error of the log cannot be logged
}

// summarize writes the summary of left-out denials, if any.
func (l *refusalLog) summarize(now time.Time) {
	missed, unwritten := l.takeMissed(now)
	if len(missed) == 0 {
		return
	}
	rules := slices.SortedFunc(maps.Keys(missed), func(a, b string) int { return cmp.Or(cmp.Compare(missed[b], missed[a]), cmp.Compare(a, b)) })
	var total, others uint64
	var byRule []any
	for i, rule := range rules {
		total += missed[rule]
		if i < maxNamed {
			byRule = append(byRule, slog.Uint64(printable.Text(rule, 100), missed[rule]))
		} else {
			others += missed[rule]
		}
	}
	record := slog.NewRecord(now, slog.LevelInfo, "denied requests omitted from the log", 0)
	record.AddAttrs(slog.Uint64("refusals", total), slog.Group("by_rule", byRule...))
	if others > 0 {
		record.AddAttrs(slog.Uint64("of_other_rules", others))
	}
	if unwritten > 0 {
		record.AddAttrs(slog.Uint64("unwritten", unwritten))
	}
	_ = l.handler.Handle(context.Background(), record)
}

// takeMissed returns how many denials of each rule have no line, and resets the counts. It removes rules without a
// recent denial.
func (l *refusalLog) takeMissed(now time.Time) (missed map[string]uint64, unwritten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed = make(map[string]uint64)
	unwritten, l.unwritten = l.unwritten, 0
	for name, r := range l.perRule.rules {
		switch {
		case r.n > 0:
			missed[name], r.n = r.n, 0
		case now.Sub(r.at) > summaryEvery: // its bucket is full again
			delete(l.perRule.rules, name)
		}
	}
	return missed, unwritten
}
