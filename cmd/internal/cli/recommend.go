package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/replay/recommend"
	"github.com/sluicehq/sluice/policy"
)

// recommendSettings are the flags of "recommend".
type recommendSettings struct {
	share, confidence, key, tokens, output string
	window                                 time.Duration
	logs                                   logFormat
}

func recommendCommand() *cobra.Command {
	q := &recommendSettings{}
	c := &cobra.Command{
		Use:   "recommend LOG...",
		Short: "Propose limits from yesterday's traffic",
		Long: "Propose limits from access logs: one for all requests, and one for each busy route. The limits are\n" +
			"per subject: a client address, or another value that --key selects. Each limit denies at most a\n" +
			"percentage of subjects and of requests (--share). Of the limits that meet this condition, the\n" +
			"command proposes the one that allows a single subject the least within a window (--window). If\n" +
			"there is too little data for the requested confidence, the output states this, and names the\n" +
			"confidence that the data supports.\n\n" +
			"Paths such as /users/123 and /users/456 count as one route. Subjects that look like abuse are\n" +
			"excluded and listed. Two tests check the limits: the proposed policy is replayed on the same log,\n" +
			"and for each of the last days, limits learned from the days before are tried on that day. The\n" +
			`proposed rules are in shadow mode: they deny nothing until you remove "shadow: true".`,
		Example: "  sluice recommend access.log.1.gz access.log\n" +
			"  sluice recommend --output api.yaml --window 1h access.log\n" +
			"  sluice recommend --key header:X-Api-Key --format json api.jsonl",
		Args:    command.Args(1, 0, "recommend: missing log: give at least one file, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE:    q.run,
	}
	f := c.Flags()
	f.StringVar(&q.share, "share", "0.1%", "largest `percentage` of subjects, and of requests, that may be denied")
	f.StringVar(&q.confidence, "confidence", "95%", "confidence that a limit denies no more than --share, as a `percentage`")
	f.DurationVar(&q.window, "window", time.Minute, "`time` for which to minimize what a limit allows a single subject:\n"+
		"a minute to protect a server, an hour against scraping")
	f.StringVar(&q.key, "key", "client_ip", "key `part` by which the limits count, as in policies; or user, the\n"+
		"authenticated user's name in the log")
	f.StringVar(&q.tokens, "tokens", "", "limit tokens of language models instead of requests: the `kind` of\n"+
		"tokens that responses report, which is total, uncached, input or output")
	q.logs.flags(c)
	f.StringVar(&q.output, "output", "text", "`what` to write to standard output: text, json or yaml; or a file that\n"+
		"ends in .yaml, for the policy, or .json, for the result, in addition\n"+
		"to the text on standard output")
	return c
}

func (q *recommendSettings) run(c *cobra.Command, logs []string) error {
	config, err := q.config(c.InOrStdin())
	if err != nil {
		return err
	}
	to, err := destinationOf(q.output, recommendFormats, "text, json or yaml, or a file that ends in .yaml or .json")
	if err != nil {
		return err
	}
	config.Files = logs
	if slices.Contains(logs, command.Stdin) {
		// Logs are read several times, but standard input can be read only once.
		kept, err := keepInput(c.InOrStdin())
		if err != nil {
			return command.Failed(err)
		}
		defer os.Remove(kept)
		config.Files = slices.Clone(logs)
		for i, name := range logs {
			if name == command.Stdin {
				config.Files[i] = kept
			}
		}
	}
	var end func()
	config.Feed.Progress, end = showProgress(c.ErrOrStderr())
	r, err := recommend.Run(c.Context(), config)
	end()
	if err != nil {
		return command.Failed(command.Unreadable("recommend", err))
	}
	return command.Failed(writeRecommendation(c.OutOrStdout(), to, r))
}

func (q *recommendSettings) config(in io.Reader) (config recommend.Config, err error) {
	config = recommend.Config{Window: q.window, Key: q.key, Tokens: q.tokens, Compile: policy.Compile, NewStore: newReplayStore}
	if config.Share, err = recommend.ParseShare(q.share); err != nil {
		return config, fmt.Errorf("--share: %w", err)
	}
	if config.Confidence, err = recommend.ParseShare(q.confidence); err != nil {
		return config, fmt.Errorf("--confidence: %w", err)
	}
	if q.window < time.Second || q.window > 24*time.Hour || q.window%time.Second != 0 {
		return config, fmt.Errorf("--window: %v is not whole seconds from 1s to 24h", q.window)
	}
	if q.tokens != "" && !slices.Contains(tokenKinds, q.tokens) {
		return config, fmt.Errorf("--tokens: %q is none of %s", q.tokens, strings.Join(tokenKinds, ", "))
	}
	if config.Feed, err = q.logs.options(in); err != nil {
		return config, err
	}
	config.Zone = config.Feed.Parse.Zone
	if config.Key == "user" {
		config.Key = "attr:user"
	}
	try := policy.Document{Rules: []policy.Rule{{Name: "key", Key: []string{config.Key}, Limit: "1/second"}}}
	if _, err := policy.Compile(try); err != nil {
		return config, fmt.Errorf("--key: %q cannot be a key: use client_ip, user, or another part that the log contains, such as header:X-Api-Key, query:token or host", q.key)
	}
	return config, nil
}

// tokenKinds are the values of --tokens.
var tokenKinds = []string{"total", "uncached", "input", "output"}

// recommendFormats are the formats of a result by the values of --output and by file extension.
var recommendFormats = map[string]string{"text": "text", "json": "json", "yaml": "yaml", ".json": "json", ".yaml": "yaml", ".yml": "yaml"}

// writeRecommendation writes a result to a destination. If that is a file, it also writes the text to standard
// output.
func writeRecommendation(out io.Writer, to destination, r *recommend.Result) error {
	err := to.write(out, func(w io.Writer) error {
		switch to.format {
		case "json":
			return writeJSON(w, r)
		case "yaml":
			return r.WriteYAML(w)
		}
		return r.WriteText(w)
	})
	if err == nil && to.file != "" {
		err = r.WriteText(out)
	}
	return err
}

// keepInput copies standard input to a temporary file, and returns its name.
func keepInput(in io.Reader) (string, error) {
	file, err := os.CreateTemp("", "sluice-recommend-*")
	if err != nil {
		return "", fmt.Errorf("cannot create a temporary file for standard input: %w", err)
	}
	_, err = io.Copy(file, in)
	if err = errors.Join(err, file.Close()); err != nil {
		os.Remove(file.Name())
		return "", fmt.Errorf("keep standard input: %w", err)
	}
	return file.Name(), nil
}
