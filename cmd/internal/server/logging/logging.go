// Package logging writes a gateway's log in the background, so that requests do not wait for the log. Package
// server imports it.
package logging

import (
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/internal/printable"
)

// Settings configure the log.
type Settings struct {
	Level    command.Level
	Refusals bool
}

// AddFlags adds the flags of the log.
func (s *Settings) AddFlags(c *cobra.Command) {
	f := c.Flags()
	f.Var(&s.Level, "log-level", "debug, info, warn or error")
	f.BoolVar(&s.Refusals, "log-refusals", true, "log denied requests at level info, sampled per subject: the first four, then the 8th, 16th, 32nd and so on")
	// RegisterFlagCompletionFunc fails only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(
		[]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
}

// New returns a log that writes text to a terminal, or JSON to another file. Only logging to a terminal can block.
// The function close waits at most a second until the remaining lines are written.
func New(out *os.File, level command.Level) (log *slog.Logger, close func()) {
	options := &slog.HandlerOptions{Level: level.Level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // otherwise JSON would have nanoseconds
			a.Value = slog.StringValue(printable.Duration(a.Value.Duration()))
		}
		return a
	}}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(out, options)), func() {}
	}
	queue := newQueue(out)
	return slog.New(slog.NewJSONHandler(queue, options)), queue.close
}
