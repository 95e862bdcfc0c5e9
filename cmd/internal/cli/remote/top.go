package remote

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/internal/printable"
)

// topSettings are the flags of top.
type topSettings struct {
	Client
	once             bool
	rule, by, window string // select the subjects
}

func topCommand() *cobra.Command {
	s := &topSettings{}
	c := s.command("top", "Show live what is allowed and denied, and for which subjects",
		"Show what all instances allow and deny: a headline, rates, rules ordered by how far they are from\n"+
			"their usual rate, the subjects denied most often, the upstreams, and the instances with their\n"+
			"stores. In a terminal, the output is refreshed every second until you interrupt it. Otherwise, or\n"+
			"with --once or --output json, it is printed once.",
		"  sluice top\n  sluice top --by traffic --rule per-key\n  sluice top --once --output json | jq -r .stats.headline.text",
		func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("top: %.60q: it takes no arguments", args[0])
			}
			return s.run(c)
		})
	f := c.Flags()
	f.BoolVar(&s.once, "once", false, "print once as plain text, and exit")
	f.StringVar(&s.rule, "rule", "", "show only subjects of the rule with this `name`")
	f.StringVar(&s.by, "by", "refusals", "order subjects by refusals or traffic")
	f.StringVar(&s.window, "window", "hour", "show subjects of the last minute, hour or day")
	return c
}

// snapshot has the counts of a gateway at one time.
type snapshot struct {
	Stats control.Stats `json:"stats"`
	Top   control.Top   `json:"top"`
}

func (s *topSettings) run(c *cobra.Command) error {
	if out := command.Terminal(c.OutOrStdout()); out != nil && !s.once && s.output == "text" {
		ctx, stop := signal.NotifyContext(c.Context(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		defer stop()
		return s.watch(ctx, out)
	}
	now, err := s.look(c.Context())
	if err != nil {
		return err
	}
	return s.Print(c, now, func(out io.Writer) { s.printSnapshot(out, now) })
}

// look reads a snapshot from the gateway.
func (s *topSettings) look(ctx context.Context) (now *snapshot, err error) {
	now = &snapshot{}
	if _, err := s.call(ctx, http.MethodGet, "/v1/stats", nil, "", nil, &now.Stats); err != nil {
		return nil, err
	}
	q := url.Values{"by": {s.by}, "window": {s.window}, "limit": {"50"}}
	if s.rule != "" {
		q.Set("rule", s.rule)
	}
	_, err = s.call(ctx, http.MethodGet, "/v1/top", q, "", nil, &now.Top)
	return now, err
}

// watch shows a snapshot every second until ctx ends. It goes on after errors.
func (s *topSettings) watch(ctx context.Context, out *os.File) error {
	// Switch to the alternate screen without a cursor, and back at the end.
	if _, err := io.WriteString(out, "\x1b[?1049h\x1b[?25l"); err != nil {
		return command.Failed(err)
	}
	defer func() { _, _ = io.WriteString(out, "\x1b[?25h\x1b[?1049l") }()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		var b bytes.Buffer
		now, err := s.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			fmt.Fprintf(&b, "No answer: %v\n", err)
		default:
			s.printSnapshot(&b, now)
		}
		width, height, err := term.GetSize(int(out.Fd()))
		if err != nil {
			width, height = 80, 24
		}
		if _, err := io.WriteString(out, "\x1b[H\x1b[2J"+fitted(b.String(), width, height)); err != nil {
			return command.Failed(err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// fitted returns the part of a text that fits on a screen, without characters that move the cursor. It wraps the
// first two lines, which are sentences, and cuts the other lines, which are rows of tables.
func fitted(text string, width, height int) string {
	var lines []string
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		rest := []rune(printable.Line(line))
		for i < 2 && len(rest) > width {
			lines, rest = append(lines, string(rest[:width])), rest[width:]
		}
		lines = append(lines, string(rest[:min(len(rest), width)]))
	}
	return strings.Join(lines[:min(len(lines), height)], "\n")
}

// byChange sorts the rules by the difference between their present and their usual rate of denials.
func byChange(all []control.RuleStats) []control.RuleStats {
	all = slices.Clone(all)
	change := func(r control.RuleStats) float64 {
		usual := 0.0
		if r.Usual != nil {
			usual = *r.Usual
		}
		c := r.Requests.Rate["deny"] + r.Requests.Rate["would_deny"] - usual
		return max(c, -c)
	}
	slices.SortStableFunc(all, func(a, b control.RuleStats) int { return cmp.Compare(change(b), change(a)) })
	return all
}
