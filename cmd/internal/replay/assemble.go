package replay

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

const (
	topOfAll  = 20
	topOfRule = 10
)

// report makes the report after all requests have been decided.
func (run *replay) report(stats *feed.Stats) *Report {
	first := run.workers[0]
	for _, w := range run.workers[1:] {
		first.traps.merge(&w.traps)
		for i := range first.sides {
			first.sides[i].tally.merge(&w.sides[i].tally)
		}
	}
	var reports []*Report
	for i, j := range run.sides {
		var counted []*counts
		for _, p := range run.parts {
			counted = append(counted, p.counts[i])
		}
		reports = append(reports, j.report(&first.sides[i].tally, counted, &first.traps, stats))
	}
	if len(reports) > 1 {
		var all versus
		for _, p := range run.parts {
			all.merge(&p.versus)
		}
		reports[0].Against = all.difference(reports[0], reports[1])
		reports[0].Against.Other = run.other
	}
	return reports[0]
}

// report makes the report of one policy.
func (j *judged) report(t *tally, counted []*counts, traps *traps, stats *feed.Stats) *Report {
	r := &Report{
		Requests: t.requests, Refused: t.refused, Unreadable: stats.Unreadable, Exempt: t.exempt, Malformed: t.malformed,
		Rules: make(map[string]Rule, len(j.rules)), Order: []string{}, NotJudged: j.notJudged,
		Log: Log{Files: stats.Files, Lines: stats.Lines, Skipped: stats.Skipped, Late: stats.Late, Unread: stats.Unread, Limited: t.limited},
		Top: []Subject{}, Statuses: []Status{},
	}
	if t.requests > 0 {
		r.From, r.To = time.UnixMicro(stats.From).UTC(), time.UnixMicro(stats.To).UTC()
	}
	steps := t.axis.steps
	r.Series = Series{Step: time.Duration(t.axis.micros()) * time.Microsecond, Requests: filled(t.all, steps), Refused: filled(t.refusals, steps)}
	if steps > 0 {
		r.Series.Begin = t.axis.begins()
	}
	for i, c := range t.statuses {
		if c.requests > 0 {
			r.Statuses = append(r.Statuses, Status{classes[i], c.requests, c.refused})
		}
	}
	rules := make([]Rule, len(j.rules))
	for i := range rules {
		rules[i] = j.describe(i, &t.rules[i], steps)
	}
	top := j.countSubjects(counted, r, rules)
	for i := range rules {
		name := j.rules[i].rule.Name
		r.Rules[name] = rules[i]
		r.Order = append(r.Order, name)
		if rules[i].Matched == 0 {
			r.NeverHit = append(r.NeverHit, name)
		}
		if by := t.shadowedBy(i); by >= 0 {
			r.Shadowed = append(r.Shadowed, Shadowed{name, j.rules[by].rule.Name})
		}
	}
	r.Top = append(r.Top, top...)
	r.Notes = traps.notes(r, t, j, counted, stats)
	return r
}

// describe makes the report of a rule, without its subjects.
func (j *judged) describe(i int, t *ruleTally, steps int) Rule {
	r := describe(j.rules[i].rule)
	r.Matched, r.Refused, r.Alone, r.Delayed, r.Longest = t.matched, t.refused, t.alone, t.delayed, t.longest
	r.Series = filled(t.series, steps)
	if t.windows > 0 {
		r.Boundary = float64(t.early) / float64(t.windows)
	}
	return r
}

// describe returns a rule of the policy, without counts.
func describe(written *policy.Rule) Rule {
	r := Rule{
		Shadow: written.Shadow, Kind: "limit", Key: keyOf(written), Limits: []string{}, Algorithm: written.Algorithm,
		Enforce: written.Enforce, Series: []int64{}, Top: []Subject{},
	}
	r.Limits = append(r.Limits, written.LimitTexts()...)
	switch {
	case written.Block:
		r.Kind = "block"
	case written.Exempt:
		r.Kind = "exempt"
	case written.Distinct.Limit != "":
		r.Algorithm = "distinct"
	}
	if r.Algorithm == "" && len(r.Limits) > 0 {
		r.Algorithm = sluice.TokenBucket.String()
		if l, err := sluice.ParseLimit(r.Limits[0]); err == nil && l.MonthDay != 0 {
			r.Algorithm = sluice.FixedWindow.String()
		}
	}
	return r
}

// filled returns counts with zeros appended up to the number of steps.
func filled(counts []int64, steps int) []int64 {
	return append(make([]int64, 0, steps), append(counts, make([]int64, max(0, steps-len(counts)))...)...)
}

// shadowedBy returns the index of a rule that has denied every request that rule i has denied, or -1. If several rules
// have denied the same requests, the first of them in the policy shadows the others.
func (t *tally) shadowedBy(i int) int {
	for _, other := range t.rules[i].beside {
		if other != i && (other < i || !slices.Contains(t.rules[other].beside, i)) {
			return other
		}
	}
	return -1
}

// countSubjects fills in the numbers of subjects, and returns the subjects with the most denials.
func (j *judged) countSubjects(counted []*counts, r *Report, rules []Rule) (top []Subject) {
	var refused []*record
	for _, c := range counted {
		s := c.subjects
		s.end()
		for i, n := range s.ofRule {
			rules[i].Subjects += n
		}
		for i := range s.records {
			rec := &s.records[i]
			rule := &rules[rec.rule]
			rule.SubjectsRefused++
			rule.Hardness[rec.hardness()]++
			refused = append(refused, rec)
		}
		r.Subjects += int64(len(s.values))
		for _, enforced := range s.values {
			if enforced {
				r.SubjectsRefused++
			}
		}
		if b := s.beyond; b != nil {
			r.Estimated = true
			r.Subjects += int64(b.values.Estimate())
			r.SubjectsRefused += int64(b.refusedValues.Estimate())
			for i := range rules {
				rules[i].Subjects += int64(sketchOf(b.seen, i).Estimate())
				rules[i].SubjectsRefused += int64(sketchOf(b.refused, i).Estimate())
			}
		}
	}
	slices.SortFunc(refused, func(a, b *record) int {
		return cmp.Or(cmp.Compare(b.refused, a.refused), strings.Compare(a.key, b.key))
	})
	for _, rec := range refused {
		if rule := &rules[rec.rule]; len(rule.Top) < topOfRule {
			rule.Top = append(rule.Top, j.shown(rec))
		}
	}
	for _, rec := range refused[:min(len(refused), topOfAll)] {
		top = append(top, j.shown(rec))
	}
	return top
}

// hardness returns the index of the record in [Rule.Hardness].
func (r *record) hardness() int {
	if r.refused == 1 {
		return 0
	}
	for i, less := range [...]time.Duration{time.Minute, 10 * time.Minute, time.Hour, 24 * time.Hour} {
		if r.down < less.Microseconds() {
			return i + 1
		}
	}
	return 5
}

// shown returns the subject of a record for the report.
func (j *judged) shown(r *record) Subject {
	return Subject{
		Rule: j.rules[r.rule].rule.Name, Key: j.shownKey(r), Requests: int64(r.subject.requests), Refused: r.refused,
		First: time.UnixMicro(r.first).UTC(), Last: time.UnixMicro(r.last).UTC(), Down: time.Duration(r.down) * time.Microsecond,
		Pattern: r.pattern(), Path: r.path(),
	}
}

// shownKey returns the key of a record in the form in which the policy shows keys. If the log names the client, the
// name replaces the address that stands for it.
func (j *judged) shownKey(r *record) string {
	rule := j.rules[r.rule].rule
	shown := valueOf(r.key)
	if !rule.Block {
		shown = j.policy.ShownKey(r.key)
	}
	if r.name == "" || !rule.Block && rule.ShowKey != "" && rule.ShowKey != "whole" {
		return shown
	}
	made := j.policy.Partition(&policy.Request{Peer: addressOf([]byte(r.name))})
	if rule.Block {
		made = addressOf([]byte(r.name))
	}
	return strings.Replace(shown, made.String(), r.name, 1)
}

// pattern describes how the requests of a subject were spread over time.
func (r *record) pattern() string {
	s := r.subject
	n, span := int64(s.requests), seconds(s.last-s.first)
	switch {
	case n == 1:
		return "one request"
	case s.runs == 1 && span <= 10*time.Second:
		return fmt.Sprintf("a burst of %s within %s, then silence", humanize.Comma(n), atLeastSecond(span))
	case s.runs == 1:
		return fmt.Sprintf("%s without a pause for %s, %s", humanize.Comma(n), rounded(span), rate(n, span))
	case int64(s.runs)*10 >= n*8:
		return fmt.Sprintf("one by one, about every %s for %s", rounded(span/time.Duration(n-1)), rounded(span))
	}
	return fmt.Sprintf("%s bursts over %s, the largest of %s within %s", humanize.Comma(int64(s.runs)), rounded(span), humanize.Comma(int64(r.bestRun)), atLeastSecond(seconds(r.runSpan)))
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }

func atLeastSecond(d time.Duration) string { return rounded(max(d, time.Second)) }

// rounded formats a duration in one unit: the largest unit of which there are at least two.
func rounded(d time.Duration) string {
	for _, u := range [...]struct {
		of   time.Duration
		name string
	}{{24 * time.Hour, "d"}, {time.Hour, "h"}, {time.Minute, "min"}} {
		if d >= 2*u.of {
			return fmt.Sprintf("%d %s", (d+u.of/2)/u.of, u.name)
		}
	}
	if d >= 10*time.Second {
		return fmt.Sprintf("%d s", (d+time.Second/2)/time.Second)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Seconds()), ".0") + " s"
}

// rate formats a rate as requests per second, per minute or per hour.
func rate(n int64, span time.Duration) string {
	perSecond := float64(n) / span.Seconds()
	switch {
	case perSecond >= 2:
		return fmt.Sprintf("about %.0f a second", perSecond)
	case perSecond*60 >= 2:
		return fmt.Sprintf("about %.0f a minute", perSecond*60)
	}
	return fmt.Sprintf("about %.0f an hour", perSecond*3600)
}
