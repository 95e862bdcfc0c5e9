package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/policy"
)

func validateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check policies, and list everything that is wrong with them",
		Long: "Check policies, and list everything that is wrong with them.\n\n" +
			"Errors go to the standard error and give the exit code 1. Warnings are about what is\n" +
			"legal and looks like a mistake; they go there, too, and leave the exit code at 0.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("validate: which file? Give at least one")
			}
			return nil
		},
		RunE: func(c *cobra.Command, files []string) error {
			failed := false
			for _, file := range files {
				p, err := policy.Load(file)
				if err != nil {
					failed = true
					c.PrintErrln(err)
					continue
				}
				for _, w := range p.Warnings() {
					c.PrintErrln("warning:", w)
				}
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: ok, %s\n", file, counted(len(p.Warnings()), "warning")); err != nil {
					return &failedError{err}
				}
			}
			if failed {
				return &exitError{exitFailed}
			}
			return nil
		},
	}
}

// counted returns "1 rule", "2 rules".
func counted(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
