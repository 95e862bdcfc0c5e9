package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/show"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// replaySettings are the policies and logs of replay.
type replaySettings struct {
	policy, against string
	logs            logFormat
	nodes           int
	output          string
}

// logFormat has the settings for reading access logs.
type logFormat struct {
	format string
	fields []string
	zone   string
}

func replayCommand() *cobra.Command {
	var q replaySettings
	c := &cobra.Command{
		Use:   "replay --policy FILE [--against FILE] LOG...",
		Short: "Try a policy on yesterday's traffic",
		Long: "Run the requests of access logs through a policy, on the log's own clock, and report which subjects\n" +
			"each rule would have denied, and when. The policy decides as it would in a gateway. No request is\n" +
			"sent.\n\n" +
			"A log may be compressed with gzip or zstd, and \"-\" is standard input. Several files are merged by\n" +
			"time. The format is detected from the first lines, or given by --format: a name, nginx's\n" +
			"log_format or Apache's LogFormat. Rules with in_flight, and rules that need data which the log lacks,\n" +
			"such as bodies, are skipped and listed.\n\n" +
			"With --against, the report shows what would change if that policy replaced the one of --policy, and\n" +
			"which subjects would newly be denied. With --nodes, it shows how much N instances would allow if\n" +
			"each counted by itself, without a shared store.\n\n" +
			"The exit code is 0, however many requests would have been denied.",
		Example: "  sluice replay --policy api.yaml /var/log/nginx/access.log*\n" +
			"  sluice replay --policy api.yaml --output report.html access.log.gz\n" +
			"  sluice replay --policy api.yaml --against tighter.yaml access.log\n" +
			"  zcat access.log.gz | sluice replay --policy api.yaml --format combined -",
		Args:    cobra.ArbitraryArgs,
		PreRunE: command.ApplySettings,
		RunE:    q.run,
	}
	f := c.Flags()
	f.StringVar(&q.policy, "policy", "", "policy `file`")
	f.StringVar(&q.against, "against", "", "another policy `file` to compare with")
	q.logs.flags(c)
	f.IntVar(&q.nodes, "nodes", 0, "compare with `N` instances that each count by themselves")
	f.StringVar(&q.output, "output", "text", "text, json, html, or a file that ends in .html or .json; html needs\n"+
		"a file: the first argument that ends in .html")
	return c
}

// flags adds the flags of every command that reads access logs.
func (l *logFormat) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.format, "format", "", "`format` of the logs: one of "+strings.Join(accesslog.Names(), ", ")+
		"; or as in the configuration of the server, such as '$remote_addr …' of nginx or '%h …' of Apache (default: recognized)")
	f.StringArrayVar(&l.fields, "field", nil, "take a field from JSON logs, as `NAME=PATH`, such as client=remote.ip; may be repeated")
	f.StringVar(&l.zone, "zone", "", "time `zone` of timestamps without one, such as Europe/Berlin (default UTC)")
}

// options returns the options of a feed. The parameter is the standard input.
func (l *logFormat) options(in io.Reader) (o feed.Options, err error) {
	o.Stdin = in
	if o.Parse.Zone, err = time.LoadLocation(l.zone); err != nil {
		return o, fmt.Errorf("--zone %.60q: unknown time zone: write it as in Europe/Berlin", l.zone)
	}
	for _, field := range l.fields {
		name, path, found := strings.Cut(field, "=")
		if !found || name == "" || path == "" {
			return o, fmt.Errorf("--field %.60q: write NAME=PATH, such as client=remote.ip", field)
		}
		if o.Parse.Fields == nil {
			o.Parse.Fields = map[string]string{}
		}
		o.Parse.Fields[name] = path
	}
	if l.format == "" && len(l.fields) > 0 {
		l.format = "json"
	}
	if l.format == "" {
		return o, nil
	}
	if o.Format, err = accesslog.Lookup(l.format, o.Parse); err != nil {
		return o, fmt.Errorf("--format: %w", err)
	}
	return o, nil
}

func (q *replaySettings) run(c *cobra.Command, args []string) error {
	to, logs, err := reportTo(q.output, args)
	if err != nil {
		return err
	}
	if q.policy == "" {
		return errors.New("replay: missing policy: give --policy FILE")
	}
	if len(logs) == 0 {
		return errors.New("replay: missing log: give at least one file, or - for standard input")
	}
	config := replay.Config{Files: logs, Compile: policy.Compile, NewStore: newReplayStore}
	if config.Feed, err = q.logs.options(c.InOrStdin()); err != nil {
		return err
	}
	doc, _, err := (&policySource{file: q.policy}).read(c, "--policy")
	if err != nil {
		return err
	}
	config.Document = *doc
	if err := q.compare(c, &config); err != nil {
		return err
	}
	bar, end := showProgress(c.ErrOrStderr())
	config.Feed.Progress = bar
	r, err := replay.Run(c.Context(), config)
	end()
	if err != nil {
		return command.Failed(command.Unreadable("replay", err))
	}
	return to.write(c.OutOrStdout(), func(w io.Writer) error { return writeReport(w, to.format, r) })
}

// maxNodes bounds --nodes.
const maxNodes = 1000

// compare sets the policy or the number of instances to compare with. The command line may set only one of
// --against and --nodes. If it sets one, the environment's value of the other is ignored.
func (q *replaySettings) compare(c *cobra.Command, config *replay.Config) error {
	f := c.Flags()
	nodes, against := command.FromCommandLine(f, "nodes") != "", command.FromCommandLine(f, "against") != ""
	switch {
	case nodes && against:
		return errors.New("--nodes: --nodes and --against cannot be combined: use one at a time")
	case q.against != "" && !nodes:
		doc, _, err := (&policySource{file: q.against}).read(c, "--against")
		config.Against = doc
		return err
	case f.Changed("nodes") && (q.nodes < 2 || q.nodes > maxNodes):
		return fmt.Errorf("--nodes: give the number of instances, 2 to %d", maxNodes)
	}
	config.Nodes = q.nodes
	return nil
}

// replayStore is a memory store that reports its evictions.
type replayStore struct{ *memory.Store }

func newReplayStore(maxBytes int64) replay.Store { return replayStore{memory.NewSize(maxBytes)} }

func (s replayStore) Evicted() int64 { return s.Losses().Evicted }

// replayFormats are the formats of a report by the values of --output and by file extension.
var replayFormats = map[string]string{"text": "text", "json": "json", "html": "html", ".json": "json", ".html": "html"}

// reportTo parses --output. A report in HTML needs a file: if output is "html", the file is the first argument that
// ends in .html. The other arguments are returned as the logs.
func reportTo(output string, args []string) (to destination, logs []string, err error) {
	to, err = destinationOf(output, replayFormats, "text, json or html, or a file that ends in .html or .json")
	if err != nil || to.format != "html" || to.file != "" {
		return to, args, err
	}
	i := slices.IndexFunc(args, func(arg string) bool { return strings.HasSuffix(arg, ".html") })
	if i < 0 {
		return to, nil, errors.New("--output html: missing file: write it after html, as in --output html report.html access.log")
	}
	to.file = args[i]
	return to, slices.Delete(slices.Clone(args), i, i+1), nil
}

// writeReport writes a report in a format.
func writeReport(w io.Writer, format string, r *replay.Report) error {
	switch format {
	case "json":
		return writeJSON(w, r)
	case "html":
		return show.HTML(w, r)
	}
	return show.Text(w, r, terminalWidth(w))
}

// terminalWidth returns the number of columns of a terminal, or 0 if the output is not a terminal.
func terminalWidth(out io.Writer) int {
	if f := command.File(out); f != nil {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return columns
		}
	}
	return 0
}
