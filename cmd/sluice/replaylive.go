package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/dustin/go-humanize"

	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/replay"
	"github.com/sluicehq/sluice/policy"
)

// live reports what a running gateway has decided.
func (q *replayed) live(c *cobra.Command, out destination) error {
	r, err := liveReport(c.Context(), func(ctx context.Context, path string, query url.Values, answer any) error {
		_, err := q.admin.call(ctx, http.MethodGet, path, query, "", nil, answer)
		return err
	})
	if err != nil {
		return err
	}
	return out.write(c.OutOrStdout(), r)
}

// liveReport makes the report of what a running gateway, and those that share its counts, have decided within
// the last day. It asks the admin API with get, which reads the answer of a path into a value.
func liveReport(ctx context.Context, get func(ctx context.Context, path string, query url.Values, answer any) error) (*replay.Report, error) {
	var stats adminapi.Stats
	if err := get(ctx, "/v1/stats", nil, &stats); err != nil {
		return nil, err
	}
	var inForce struct{ Document policy.Document }
	if err := get(ctx, "/v1/policy", nil, &inForce); err != nil {
		return nil, err
	}
	r := &replay.Report{
		Rules: map[string]replay.Rule{}, Order: []string{}, To: stats.At, From: stats.Since, Estimated: true,
		Requests: allOf(stats.Requests.Day), Refused: int64(stats.Requests.Day["deny"]), Top: []replay.Subject{}, Statuses: []replay.Status{},
	}
	if day := stats.At.Add(-24 * time.Hour); day.After(r.From) {
		r.From = day
	}
	seen := make(map[string]*adminapi.RuleStats, len(stats.Rules))
	for i := range stats.Rules {
		seen[stats.Rules[i].Rule] = &stats.Rules[i]
	}
	for i := range inForce.Document.Rules {
		written := &inForce.Document.Rules[i]
		rule, err := liveRule(ctx, get, r, written, seen[written.Name])
		if err != nil {
			return nil, err
		}
		r.Rules[written.Name] = rule
		r.Order = append(r.Order, written.Name)
		if rule.Matched == 0 && rule.Kind == "limit" {
			r.NeverHit = append(r.NeverHit, written.Name)
		}
		r.Subjects, r.SubjectsRefused = max(r.Subjects, rule.Subjects), max(r.SubjectsRefused, rule.SubjectsRefused)
	}
	for name := range r.Rules {
		rule := r.Rules[name]
		rule.Series = append(rule.Series, make([]int64, len(r.Series.Requests)-len(rule.Series))...)
		r.Rules[name] = rule
	}
	var err error
	if r.Top, err = liveTop(ctx, get, "", 20); err != nil {
		return nil, err
	}
	r.Notes = liveNotes(&stats)
	return r, nil
}

// liveRule makes the report of a rule, and adds its series to the report.
func liveRule(ctx context.Context, get func(context.Context, string, url.Values, any) error, r *replay.Report, written *policy.Rule, counts *adminapi.RuleStats) (rule replay.Rule, err error) {
	rule = replay.Describe(written)
	if counts == nil {
		return rule, nil
	}
	day := counts.Requests.Day
	rule.Matched, rule.Delayed = allOf(day), int64(day["delayed"])
	rule.Refused = int64(day["deny"] + day["would_deny"])
	rule.Subjects, rule.SubjectsRefused = int64(counts.Asked.Day), int64(counts.Refused.Day)
	var own adminapi.RuleStats
	if err := get(ctx, "/v1/rules/"+url.PathEscape(written.Name)+"/stats", nil, &own); err != nil {
		return rule, err
	}
	if own.Series != nil {
		rule.Series = addLive(r, &own.Series.Days)
	}
	if rule.Refused > 0 {
		rule.Top, err = liveTop(ctx, get, written.Name, 10)
	}
	return rule, err
}

// addLive adds the steps of a rule to the report, and returns its refusals. Requests over time are those of
// the busiest rule, since nobody counts them all by time.
func addLive(r *replay.Report, s *adminapi.Steps) (refused []int64) {
	for _, counts := range s.Counts {
		for len(r.Series.Requests) < len(counts) {
			r.Series.Requests, r.Series.Refused = append(r.Series.Requests, 0), append(r.Series.Refused, 0)
		}
	}
	r.Series.Begin, r.Series.Step = s.Begin, time.Duration(s.Seconds)*time.Second
	refused = make([]int64, len(r.Series.Requests))
	for i := range refused {
		var all, denied int64
		for outcome, counts := range s.Counts {
			if i >= len(counts) {
				continue
			}
			n := int64(counts[i])
			switch all += n; outcome {
			case "deny":
				denied += n
				refused[i] += n
			case "would_deny":
				refused[i] += n
			}
		}
		r.Series.Requests[i] = max(r.Series.Requests[i], all)
		r.Series.Refused[i] = max(r.Series.Refused[i], denied)
	}
	return refused
}

// liveTop returns the subjects that were refused most, of a rule or of all.
func liveTop(ctx context.Context, get func(context.Context, string, url.Values, any) error, rule string, n int) ([]replay.Subject, error) {
	q := url.Values{"by": {"refusals"}, "window": {"day"}, "limit": {strconv.Itoa(n)}}
	if rule != "" {
		q.Set("rule", rule)
	}
	var top adminapi.Top
	if err := get(ctx, "/v1/top", q, &top); err != nil {
		return nil, err
	}
	all := make([]replay.Subject, 0, len(top.Items))
	for _, t := range top.Items {
		s := replay.Subject{Rule: t.Rule, Key: t.Shown, Refused: int64(t.Count)}
		if t.First != nil {
			s.First = *t.First
		}
		if t.Last != nil {
			s.Last = *t.Last
		}
		if t.Minutes > 0 {
			s.Pattern = fmt.Sprintf("refused in %d of the last 60 minutes", t.Minutes)
		}
		all = append(all, s)
	}
	return all, nil
}

// liveNotes says what a running gateway does not tell.
func liveNotes(stats *adminapi.Stats) (notes []string) {
	notes = append(notes,
		"These are the decisions of a running gateway within the last day, or since it began to count; numbers of subjects are estimates, and the one of all rules is that of the rule with the most.",
		"Requests over time are those of the busiest rule. What a running gateway does not keep is empty: statuses, how hard subjects are hit, how many requests of theirs there were, which rules refuse beside others, and refusals at the beginning of windows.")
	stale := 0
	for _, i := range stats.Instances {
		if i.Stale {
			stale++
		}
	}
	if stale > 0 {
		notes = append(notes, fmt.Sprintf("%d of %d instances have not been heard of lately, and what they count now is missing.", stale, len(stats.Instances)))
	}
	if stats.Malformed > 0 {
		notes = append(notes, humanize.Comma(int64(stats.Malformed))+" requests of the last hour were refused as malformed.")
	}
	return notes
}

func allOf(counts adminapi.Counts) (all int64) {
	for _, n := range counts {
		all += int64(n)
	}
	return all
}
