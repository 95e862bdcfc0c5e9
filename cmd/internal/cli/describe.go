package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/limitpage"
)

func describeCommand() *cobra.Command {
	var output string
	var from policySource
	c := &cobra.Command{
		Use:   "describe [POLICY]",
		Short: "Write a page about the limits for users of the API",
		Long: "Write a page about the limits for users of the API, as Markdown or HTML: which limits there are,\n" +
			"for whom, what counts, what the response fields and a refusal say, and what to do about one. The\n" +
			"refusal that it shows is a real one, made at a fixed time, so that the page only changes with the\n" +
			"policy. POLICY is a file, \"example\" for the built-in one, or - for standard input; with --rules\n" +
			"it may be left out.\n\n" +
			"Left out are rules that exempt, block, only watch, or are for listed clients; overrides, and which\n" +
			"subjects and networks there are; descriptions; the values of headers; and where a tier is read from.\n" +
			"Rules that count by a field of the body or a TLS fingerprint, or that count failures, guard\n" +
			"something: the page only says that there are further limits. What a policy is in shadow mode for\n" +
			"now, or enforces for a share of subjects, is described as it will be for all. Names of rules and\n" +
			"tiers, patterns, hosts, and the names of headers, cookies and parameters are on it:\n" +
			"read the page before you publish it.",
		Example: "  sluice describe api.yaml > limits.md\n" +
			"  sluice describe api.yaml --output limits.html\n" +
			"  sluice describe --rules sqlite:rules.db",
		Args:    command.Args(0, 1, "describe: which policy? Give one file, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			to, err := destinationOf(output, pageFormats, "markdown or html, or a file that ends in .md or .html")
			if err != nil {
				return err
			}
			if from.file = strings.Join(args, ""); !from.any() {
				return errors.New("describe: which policy? Give one file, - for standard input, or --rules URL for one in a database")
			}
			doc, p, err := from.read(c, "describe")
			if err != nil {
				return err
			}
			page, err := limitpage.Of(c.Context(), doc, p)
			if err != nil {
				return command.Failed(err)
			}
			write := page.Markdown
			if to.format == "html" {
				write = page.HTML
			}
			return to.write(c.OutOrStdout(), write)
		},
	}
	command.AddRulesFlag(c.Flags(), &from.rules, ", with or without a policy file")
	c.Flags().StringVar(&output, "output", "markdown", "markdown; html; or a file that ends in .md or .html")
	return c
}

// pageFormats are the formats of a page, and the extensions of files with them.
var pageFormats = map[string]string{"markdown": "markdown", "html": "html", ".md": "markdown", ".html": "html"}
