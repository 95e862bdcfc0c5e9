package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/replay/accuracy"
	"github.com/sluicehq/sluice/internal/replay/feed"
	"github.com/sluicehq/sluice/memory"
)

// judgeAlgorithms answers --accuracy.
func (q *replayed) judgeAlgorithms(c *cobra.Command, out destination, logs []string) error {
	if out.format == "html" {
		return errors.New("--accuracy: write text or json")
	}
	limit, err := accuracyLimit(q.limit)
	if err != nil {
		return err
	}
	o, err := q.logs.options(c.InOrStdin())
	if err != nil {
		return err
	}
	all, err := accuracyOf(c.Context(), limit, logs, o)
	if err != nil {
		return &failedError{unreadable("replay", err)}
	}
	return out.writeWith(c.OutOrStdout(), func(w io.Writer) error {
		if out.format == "json" {
			return writeAccuracyJSON(w, all)
		}
		return printAccuracy(w, all)
	})
}

// accuracyLimit reads the limit that algorithms are compared at: that of --limit.
func accuracyLimit(text string) (sluice.Limit, error) {
	if text == "" {
		return sluice.Limit{}, errors.New("--accuracy: at which limit? Give one, as in --limit 100/minute")
	}
	limit, err := sluice.ParseLimit(text)
	switch {
	case err != nil:
		return limit, fmt.Errorf("--limit: %w", err)
	case limit.MonthDay != 0:
		return limit, errors.New("--limit: months of the calendar are windows, which no other algorithm knows: give a period such as 30d")
	}
	return limit, nil
}

// judged is how the algorithms did on some traffic.
type judged struct {
	Traffic  string             `json:"traffic"`
	About    string             `json:"about"`
	Limit    string             `json:"limit"`
	Verdicts []accuracy.Verdict `json:"verdicts"`
}

// Of synthetic traffic.
const (
	accuracyRequests = 500_000
	accuracySeed     = 1
)

// accuracyOf measures the algorithms at a limit, by the clients of logs, or on synthetic traffic if
// there are none.
func accuracyOf(ctx context.Context, limit sluice.Limit, logs []string, o feed.Options) (all []judged, err error) {
	limit.Burst = 0 // which windows and logs have none of
	add := func(traffic, about string, requests iter.Seq[accuracy.Request]) error {
		verdicts, err := accuracy.Measure(ctx, limit, requests, func() accuracy.Store { return memory.NewSize(256 << 20) })
		all = append(all, judged{traffic, about, limit.String(), verdicts})
		return err
	}
	if len(logs) > 0 {
		var failed error
		err := add("log", "the clients of the log", func(yield func(accuracy.Request) bool) { failed = clients(ctx, logs, o, yield) })
		if failed != nil {
			err = failed
		}
		return all, err
	}
	for _, s := range accuracy.Synthetics() {
		about := fmt.Sprintf("%s; %d requests, seed %d", s.About, accuracyRequests, accuracySeed)
		if err := add(s.Name, about, s.Make(limit, accuracyRequests, accuracySeed)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// clients yields the requests of logs by who made them.
func clients(ctx context.Context, logs []string, o feed.Options, yield func(accuracy.Request) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	enough := false
	_, err := feed.Read(ctx, logs, o, func(b *feed.Batch) error {
		defer b.Release()
		for _, e := range b.Entries {
			if enough = !yield(accuracy.Request{At: e.Time, Key: string(e.Client)}); enough {
				return context.Canceled
			}
		}
		return nil
	})
	if enough {
		return nil
	}
	return err
}

// cloudflares is what others have told of a sliding window counter, to stand beside ours: the share of
// wrong decisions over 400 million requests from 270,000 sources.
const cloudflares = "Cloudflare reported 0.003 % of wrong decisions for its sliding window counter, over 400 million requests of 270,000\n" +
	"sources, as far as that was known from what they asked for in all. A share says nothing without its traffic: beside it\n" +
	"stands \"mixed\", where few are near the limit."

// printAccuracy writes tables for people.
func printAccuracy(w io.Writer, all []judged) error {
	for _, m := range all {
		if _, err := fmt.Fprintf(w, "%s: %s\nEach at %s, beside a list of all that it has let pass within the period.\n\n", m.Traffic, m.About, m.Limit); err != nil {
			return err
		}
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(t, "algorithm\tdecisions\tlet pass\twrongly let pass\twrongly refused\twrong\tworst overshoot\t")
		for _, v := range m.Verdicts {
			fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.4f %%\t%d\t\n", v.Algorithm, v.Decisions, v.Admitted, v.FalseAllows, v.FalseDenials, 100*v.Wrong(), v.Worst)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintln(w, "A bucket lets a whole burst pass and then its rate, up to twice the limit in a period: that is what it means, and no\n"+
		"fault. A queue spreads what it lets pass, and refuses what would wait for too long.\n\n"+cloudflares)
	return err
}

func writeAccuracyJSON(w io.Writer, all []judged) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(all)
}
