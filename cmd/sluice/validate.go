package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

func validateCommand() *cobra.Command {
	cluster := false
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check policies, and list everything wrong with them",
		Long: "Check policies, and list everything wrong with them. \"-\" is standard input.\n\n" +
			"For each rule of a valid policy, say what it does while the shared store is away, and whether\n" +
			"its on_error says so or that follows from words in its match and hosts. For each rule that is\n" +
			"leased or synced, say by how much its limits can be exceeded. For each with in_flight, say which\n" +
			"doors take places and which only look. For each with a share, say what tenants get of it, and how\n" +
			"fast that settles. For each whose cost the response tells, say how much a key can owe, and for\n" +
			"how long that locks it out. For each of its answers, say what is sent: which status, and which\n" +
			"types of bodies.\n\n" +
			"Errors go to standard error, and the exit code is 1. Warnings are about what is legal but\n" +
			"looks like a mistake; they go there too, and leave the exit code at 0. Ten of a kind are told,\n" +
			"and how many more there are.\n\n" +
			"With --cluster, also say which rules a Redis Cluster can charge in one step: rules for the\n" +
			"same requests can if they name the same parts of their keys under \"together\".",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("validate: which file? Give at least one, or - for standard input")
			}
			return nil
		},
		PreRunE: applySettings,
		RunE: func(c *cobra.Command, files []string) error {
			failed := false
			for _, file := range files {
				p, err := loadFile(file, c.InOrStdin())
				if err != nil {
					failed = true
					c.PrintErrln(unreadable("validate", err))
					continue
				}
				for _, w := range warningLines(p.Warnings()) {
					c.PrintErrln("warning:", w)
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: ok, %s\n", file, counted(len(p.Warnings()), "warning")); err != nil {
					return &failedError{err}
				}
				if err := printOutages(c.OutOrStdout(), p); err != nil {
					return &failedError{err}
				}
				for _, name := range p.InFlight() {
					if _, err := fmt.Fprintf(c.OutOrStdout(), "  rule %s counts requests in flight: %s\n", name, endsKnown); err != nil {
						return &failedError{err}
					}
				}
				if err := printShares(c.OutOrStdout(), p); err != nil {
					return &failedError{err}
				}
				if err := printDebts(c.OutOrStdout(), p); err != nil {
					return &failedError{err}
				}
				if err := printConsistency(c.OutOrStdout(), p); err != nil {
					return &failedError{err}
				}
				if err := printAnswers(c.OutOrStdout(), p); err != nil {
					return &failedError{err}
				}
				if !cluster {
					continue
				}
				if err := printCluster(c, file, p); err != nil {
					return &failedError{err}
				}
			}
			if failed {
				return &exitError{exitFailed}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&cluster, "cluster", false, "say which rules a Redis Cluster can charge in one step")
	return c
}

// endsKnown says where requests in flight are counted.
const endsKnown = "behind the gateway and in Go programs, and at --check and by sluice.v1.Checks of --grpc for those who ask for a place; auth requests, Envoy at --grpc, --resp and --spoe do not tell when a request ends: there it only looks, and takes no place"

// printOutages says what each rule does while the store is away.
func printOutages(out io.Writer, p *policy.Policy) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, o := range p.Outages() {
		fmt.Fprintf(table, "  rule %s\t%s\n", o.Rule, inOutage(o))
	}
	return table.Flush()
}

// inOutage puts what a rule does while the store is away into words.
func inOutage(o policy.Outage) string {
	does := [...]string{sluice.Allow: "passes", sluice.Deny: "refuses", sluice.Local: "limits to the local share"}[o.OnError]
	return fmt.Sprintf("%s if the store is away: %s", does, o.Why)
}

// printCluster says which rules are charged in one step on a cluster, and which are not, or that there
// is nothing to say.
func printCluster(c *cobra.Command, file string, p *policy.Policy) error {
	together, apart := p.Cluster()
	for _, group := range together {
		if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: on a cluster in one step: %s\n", file, strings.Join(group, ", ")); err != nil {
			return err
		}
	}
	for _, a := range apart {
		c.PrintErrln("note:", a)
	}
	if len(together)+len(apart) > 0 {
		return nil
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "%s: on a cluster: no request has to be charged for several rules\n", file)
	return err
}

// counted returns "1 rule", "2 rules".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
