package cli

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/openapi"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/policy"
)

func validateCommand() *cobra.Command {
	var api string
	cluster := false
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check policies, and list all errors",
		Long: "Check policies, and list all errors. \"-\" is standard input.\n\n" +
			"For each rule of a valid policy, the output shows what it does while the shared store is\n" +
			"unavailable, and why. For example, the rule sets on_error; or it denies by default, because its\n" +
			"match or hosts contain a word such as \"login\".\n" +
			"Some rules add a line:\n\n" +
			"  leased               how far ahead instances reserve units\n" +
			"  synced               by how much instances can exceed the limits\n" +
			"  in_flight            which integrations take permits, only check for a free one, or ignore the rule\n" +
			"  share                what each tenant gets, and how fast allocations settle\n" +
			"  cost in a response   how much a key can owe, and how long it is then locked out\n\n" +
			"For each entry under answers, the output shows the status and the types of the bodies.\n\n" +
			"Errors go to standard error, and the exit code is 1. Warnings point out valid settings that are\n" +
			"probably mistakes. They also go to standard error, and the exit code stays 0. At most ten warnings\n" +
			"of a kind are listed; further ones are only counted.\n\n" +
			"With --cluster, the output also shows which rules a Redis Cluster can charge in one step. Such\n" +
			"rules list the same key parts under \"together\".\n\n" +
			"With --openapi, each policy is also compared with an OpenAPI document. An operation without a\n" +
			"rule is a warning, and a rule without an operation is a note.",
		Args:    command.Args(1, 0, "validate: missing file: give at least one, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, files []string) error {
			var operations *openapi.Document
			if api != "" {
				var err error
				if operations, err = readOpenAPI(api, c.InOrStdin()); err != nil {
					return command.Failed(command.Unreadable("--openapi", err))
				}
			}
			failed := false
			for _, file := range files {
				source := policySource{file: file}
				doc, p, err := source.read(c, "validate")
				if err != nil {
					failed = true
					c.PrintErrln(err)
					continue
				}
				if err := printValid(c, file, p, cluster); err != nil {
					return command.Failed(err)
				}
				if err := printCoverage(c, file, doc, operations); err != nil {
					return command.Failed(err)
				}
			}
			if failed {
				return command.ErrReported
			}
			return nil
		},
	}
	c.Flags().StringVar(&api, "openapi", "", "OpenAPI document `file` to compare the policies with")
	c.Flags().BoolVar(&cluster, "cluster", false, "show which rules a Redis Cluster can charge in one step")
	return c
}

// printValid writes the warnings of a policy, and the behavior of its rules.
func printValid(c *cobra.Command, file string, p *policy.Policy, cluster bool) error {
	for _, w := range command.WarningLines(p.Warnings()) {
		c.PrintErrln("warning:", w)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s: ok, %s\n", file, words.Counted(len(p.Warnings()), "warning"))
	printPolicy(&out, p)
	var apart []policy.Problem
	if cluster {
		var together [][]string
		together, apart = p.Cluster()
		printCluster(&out, file, together, len(apart) > 0)
	}
	_, err := c.OutOrStdout().Write(out.Bytes())
	for _, a := range apart {
		c.PrintErrln("note:", a)
	}
	return err
}

// printCoverage writes how many operations of an OpenAPI document have a rule, which have none, and which rules
// apply to no operation. Without a document, it writes nothing.
func printCoverage(c *cobra.Command, file string, doc *policy.Document, d *openapi.Document) error {
	if d == nil {
		return nil
	}
	met, err := openapi.Cover(doc, d)
	if err != nil {
		return err
	}
	problems := func(all []*openapi.Operation, format, hint string) (lines []policy.Problem) {
		for _, o := range all {
			lines = append(lines, policy.Problem{File: d.File, Line: o.Line, Message: fmt.Sprintf(format, file, o), Hint: hint})
		}
		return lines
	}
	unmet := problems(met.Unmet, "no rule of %s applies to %s", "add a rule, or a pattern to one")
	for _, line := range command.WarningLines(slices.Concat(d.Left, unmet)) {
		c.PrintErrln("warning:", line)
	}
	for _, line := range command.WarningLines(problems(met.General, "only rules of %s that match all paths apply to %s", "")) {
		c.PrintErrln("note:", line)
	}
	for _, name := range met.Idle {
		c.PrintErrf("note: rule %q applies to no operation in %s\n", name, d.File)
	}
	weak := ""
	if len(met.Weak) > 0 {
		weak = fmt.Sprintf("; for %d of them, these rules limit no requests, or only some", len(met.Weak))
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "%s: rules apply to %d of %s in %s%s\n", file, met.Operations-len(met.Unmet), words.Counted(met.Operations, "operation"), d.File, weak)
	return err
}
