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
		Long: "Write a page about the limits for users of the API, as Markdown or HTML. It lists the limits and\n" +
			"the requests they apply to, how requests are counted, the response fields, and what to do after a\n" +
			"denial. The page shows a denial as Sluice would send it, but with a constant time, so the page\n" +
			"changes only if the policy does. POLICY is a file, \"example\" for the built-in one, or - for\n" +
			"standard input. It is optional with --rules.\n\n" +
			"The page omits:\n" +
			"  - rules that exempt, block or only mark requests, are in shadow mode, or apply only to certain clients\n" +
			"  - overrides, subjects and networks\n" +
			"  - descriptions, values of headers, and how a request gets its tier\n\n" +
			"Rules that count only some statuses, or count by a body field or a TLS fingerprint, protect against\n" +
			"abuse, unless they are budgets of tokens or USD: the page mentions only that there are further\n" +
			"limits. If the whole policy is in shadow mode, or a rule is enforced for a percentage of subjects,\n" +
			"the page describes the limits as fully enforced.\n\n" +
			"The page contains the names of rules, tiers, headers, cookies, parameters, claims and body fields,\n" +
			"and patterns and hosts. Read it before you publish it.",
		Example: "  sluice describe api.yaml > limits.md\n" +
			"  sluice describe api.yaml --output limits.html\n" +
			"  sluice describe --rules sqlite:rules.db",
		Args:    command.Args(0, 1, "describe: missing policy: give one file, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			to, err := destinationOf(output, pageFormats, "markdown or html, or a file that ends in .md or .html")
			if err != nil {
				return err
			}
			if from.file = strings.Join(args, ""); !from.any() {
				return errors.New("describe: missing policy: give one file, - for standard input, or --rules URL for one in a database")
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

// pageFormats are the formats of a page by the values of --output and by file extension.
var pageFormats = map[string]string{"markdown": "markdown", "html": "html", ".md": "markdown", ".html": "html"}
