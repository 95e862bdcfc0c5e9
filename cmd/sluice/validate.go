package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/policy"
)

func validateCommand() *cobra.Command {
	cluster := false
	c := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check policies, and list everything wrong with them",
		Long: "Check policies, and list everything wrong with them. \"-\" is standard input.\n\n" +
			"Errors go to standard error, and the exit code is 1. Warnings are about what is legal but\n" +
			"looks like a mistake; they go there too, and leave the exit code at 0.\n\n" +
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
				for _, w := range p.Warnings() {
					c.PrintErrln("warning:", w)
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: ok, %s\n", file, counted(len(p.Warnings()), "warning")); err != nil {
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

// printCluster says which rules are charged in one step on a cluster, and which are not.
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
	return nil
}

// counted returns "1 rule", "2 rules".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
