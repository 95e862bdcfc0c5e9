package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sluicehq/sluice/cmd/internal/replay"
	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/cmd/internal/replay/show"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// replayed is a replay as its flags describe it.
type replayed struct {
	policy, against string
	logs            logFlags
	nodes           int
	output          string
}

// logFlags say how access logs are read.
type logFlags struct {
	format string
	fields []string
	zone   string
}

func replayCommand() *cobra.Command {
	var q replayed
	c := &cobra.Command{
		Use:   "replay --policy FILE [--against FILE] LOG...",
		Short: "Try a policy on yesterday's traffic",
		Long: "Run the requests of access logs through a policy, on the log's own clock, and report whom it would have\n" +
			"refused, when, and by which rule. It decides as a gateway does, and nobody is refused.\n\n" +
			"A log may be compressed with gzip or zstd, and \"-\" is standard input. Several files are merged by\n" +
			"time. The format is recognized by the first lines, or given with --format: a name, or the log_format\n" +
			"of nginx or the LogFormat of Apache as the server's configuration has it. Rules that go by what the\n" +
			"log does not tell, such as bodies, are left out and listed.\n\n" +
			"With --against, the report says what changes if that policy takes the place of the first, and who\n" +
			"newly suffers. With --nodes, it says what passes if so many instances count each for itself, without\n" +
			"a shared store.\n\n" +
			"The exit code is 0 whatever would have been refused.",
		Example: "  sluice replay --policy api.yaml /var/log/nginx/access.log*\n" +
			"  sluice replay --policy api.yaml --output report.html access.log.gz\n" +
			"  sluice replay --policy api.yaml --against tighter.yaml access.log\n" +
			"  zcat access.log.gz | sluice replay --policy api.yaml --format combined -",
		Args:    cobra.ArbitraryArgs,
		PreRunE: applySettings,
		RunE:    q.run,
	}
	f := c.Flags()
	f.StringVar(&q.policy, "policy", "", "policy `file`")
	f.StringVar(&q.against, "against", "", "another policy `file`, to compare with")
	q.logs.flags(c)
	f.IntVar(&q.nodes, "nodes", 0, "compare with `N` instances that count each for itself")
	f.StringVar(&q.output, "output", "text", "text, json, or a file that ends in .html or .json, to write that; or html, and the file to write in front of the logs")
	return c
}

// flags are those of every command that reads access logs.
func (l *logFlags) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&l.format, "format", "", "`format` of the logs: one of "+strings.Join(accesslog.Names(), ", ")+
		"; or as the server has it, such as '$remote_addr …' of nginx or '%h …' of Apache (default: recognized)")
	f.StringArrayVar(&l.fields, "field", nil, "of JSON lines, where something is, as `NAME=PATH`, such as client=remote.ip; may be given several times")
	f.StringVar(&l.zone, "zone", "", "time `zone` of times without one, such as Europe/Berlin (default UTC)")
}

// options returns how logs are read, with in as standard input.
func (l *logFlags) options(in io.Reader) (o feed.Options, err error) {
	o.Stdin = in
	if o.Parse.Zone, err = time.LoadLocation(l.zone); err != nil {
		return o, fmt.Errorf("--zone %.60q: there is no such time zone: write it as in Europe/Berlin", l.zone)
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

func (q *replayed) run(c *cobra.Command, args []string) error {
	out, logs, err := reportTo(q.output, args)
	if err != nil {
		return err
	}
	if q.policy == "" {
		return errors.New("replay: which policy? Give --policy FILE")
	}
	if len(logs) == 0 {
		return errors.New("replay: which log? Give at least one file, or - for standard input")
	}
	config := replay.Config{Files: logs, Compile: policy.Compile, NewStore: newReplayStore}
	if config.Feed, err = q.logs.options(c.InOrStdin()); err != nil {
		return err
	}
	if config.Document, err = replayedPolicy("policy", q.policy); err != nil {
		return err
	}
	if err := q.compare(c.Flags(), &config); err != nil {
		return err
	}
	bar, end := showProgress(c.ErrOrStderr())
	config.Feed.Progress = bar
	r, err := replay.Run(c.Context(), config)
	end()
	if err != nil {
		return &failedError{unreadable("replay", err)}
	}
	return out.write(c.OutOrStdout(), r)
}

// maxNodes is how many instances a replay compares with at most.
const maxNodes = 1000

// compare adds what the policy is compared with. A flag on the command line comes before a setting of the
// environment for the other comparison.
func (q *replayed) compare(f *pflag.FlagSet, c *replay.Config) error {
	nodes, against := typed(f, "nodes") != "", typed(f, "against") != ""
	switch {
	case nodes && against:
		return errors.New("--nodes: instances that count each for itself and --against are two questions: ask one at a time")
	case q.against != "" && !nodes:
		doc, err := replayedPolicy("against", q.against)
		c.Against = &doc
		return err
	case f.Changed("nodes") && (q.nodes < 2 || q.nodes > maxNodes):
		return fmt.Errorf("--nodes: how many instances are there? Give 2 to %d", maxNodes)
	}
	c.Nodes = q.nodes
	return nil
}

// replayedPolicy reads a policy that is valid.
func replayedPolicy(flag, file string) (doc policy.Document, err error) {
	data, err := policyfile.ReadFile(file)
	if err != nil {
		return doc, unreadable("--"+flag, err)
	}
	_, err = policyfile.ParseTo(file, data, policyfile.ReadFile, func(d policy.Document, where func(string) (string, int)) (*policy.Policy, error) {
		doc = d
		return policy.CompileAt(d, where)
	})
	if err != nil {
		return doc, &failedError{err}
	}
	return doc, nil
}

// replayStore is a store of the memory of this process.
type replayStore struct{ *memory.Store }

func newReplayStore(maxBytes int64) replay.Store { return replayStore{memory.NewSize(maxBytes)} }

func (s replayStore) Evicted() int64 { return s.Losses().Evicted }

// destination is where a report goes, and how it is written.
type destination struct {
	format string // "text", "json" or "html"
	file   string // empty: standard output
}

// reportTo reads --output: a format, or a file whose name says it. A page is for a file: after "html" it is
// the first argument that is called like one, or else that is no file yet.
func reportTo(output string, args []string) (d destination, logs []string, err error) {
	switch {
	case output == "html":
		i := slices.IndexFunc(args, func(a string) bool { return strings.HasSuffix(a, ".html") })
		if i < 0 {
			i = slices.IndexFunc(args, isNew)
		}
		if i < 0 {
			i = slices.IndexFunc(args, isPage)
		}
		if i < 0 {
			return d, nil, errors.New("--output html: which file? Write it behind, as in --output html report.html access.log; one that is there already has to be a page, or to end in .html")
		}
		return destination{"html", args[i]}, slices.Delete(slices.Clone(args), i, i+1), nil
	case output == "text", output == "json":
		return destination{format: output}, args, nil
	case strings.HasSuffix(output, ".html"):
		return destination{"html", output}, args, nil
	case strings.HasSuffix(output, ".json"):
		return destination{"json", output}, args, nil
	}
	return d, nil, fmt.Errorf("--output %.60q: write text, json or html, or a file that ends in .html or .json", output)
}

// isNew reports whether a file is not there.
func isNew(name string) bool {
	_, err := os.Stat(name)
	return name != "-" && errors.Is(err, fs.ErrNotExist)
}

// isPage reports whether a file is a page that an earlier report may have left: never a log.
func isPage(name string) bool {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() { // to open a pipe would wait for its writer
		return false
	}
	f, err := os.Open(name)
	if err != nil {
		return false
	}
	defer f.Close()
	const begin = "<!doctype html>"
	head := make([]byte, len(begin))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == begin
}

// write writes the report.
func (d destination) write(out io.Writer, r *replay.Report) error {
	return d.writeWith(out, func(w io.Writer) error { return d.print(w, r) })
}

// writeWith has print write to where it goes.
func (d destination) writeWith(out io.Writer, print func(io.Writer) error) error {
	if d.file == "" {
		return failed(print(out))
	}
	f, err := os.Create(d.file)
	if err != nil {
		return &failedError{err}
	}
	return failed(errors.Join(print(f), f.Close()))
}

func (d destination) print(out io.Writer, r *replay.Report) error {
	if d.format == "json" {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}
	if d.format == "html" {
		return show.HTML(out, r)
	}
	return show.Text(out, r, terminalWidth(out))
}

func failed(err error) error {
	if err != nil {
		return &failedError{err}
	}
	return nil
}

// terminalWidth returns how many columns a terminal has, and 0 of what is none.
func terminalWidth(out io.Writer) int {
	if f := fileOf(out); f != nil {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil {
			return columns
		}
	}
	return 0
}
