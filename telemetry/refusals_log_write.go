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

// maxTold is the most rules that a summary names.
const maxTold = 10

// run writes lines until the log ends. Only run waits for the handler.
func (l *refusalLog) run() {
	defer close(l.ended)
	tell := time.NewTicker(tellEvery)
	defer tell.Stop()
	for {
		select {
		case line := <-l.lines:
			l.write(line)
		case now := <-tell.C:
			l.forget(now.Add(-peace))
			l.tell(now)
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
	l.tell(now)
}

func (l *refusalLog) stop() {
	l.stopped.Store(true)
	close(l.end)
	select {
	case <-l.ended:
	case <-time.After(stopWithin): // a writer that blocks must not delay the end of the process
	}
}

// forget removes subjects without a refusal since a time, and adds their left-out refusals to the summary.
func (l *refusalLog) forget(since time.Time) {
	for i := range l.subjects {
		set := &l.subjects[i]
		var gone [placesOfASet]refusedSubject
		set.mu.Lock()
		for j := range set.places {
			if p := &set.places[j]; p.hash != 0 && p.at <= since.UnixNano() {
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
	message := "refused"
	switch {
	case r.Marked:
		message = "marked"
	case r.Shadow:
		message = "would refuse"
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
	_ = l.handler.Handle(r.ctx, record) // no one can handle an error of the log itself
}

// tell writes the summary of left-out refusals, if any.
func (l *refusalLog) tell(now time.Time) {
	missed, unwritten := l.takeMissed(now)
	if len(missed) == 0 {
		return
	}
	rules := slices.SortedFunc(maps.Keys(missed), func(a, b string) int { return cmp.Or(cmp.Compare(missed[b], missed[a]), cmp.Compare(a, b)) })
	var total, others uint64
	var byRule []any
	for i, rule := range rules {
		total += missed[rule]
		if i < maxTold {
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

// takeMissed returns how many refusals of each rule have no line, and resets the counts. It removes rules that have
// not refused for a while.
func (l *refusalLog) takeMissed(now time.Time) (missed map[string]uint64, unwritten uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	missed = make(map[string]uint64)
	unwritten, l.unwritten = l.unwritten, 0
	for name, r := range l.perRule.rules {
		switch {
		case r.n > 0:
			missed[name], r.n = r.n, 0
		case now.Sub(r.at) > tellEvery: // its bucket is full again
			delete(l.perRule.rules, name)
		}
	}
	return missed, unwritten
}
