package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func importEnvoyCommand() *cobra.Command {
	s := &envoySettings{}
	c := &cobra.Command{
		Use:   "envoy DIR",
		Short: "Turn a configuration of envoyproxy/ratelimit into a policy",
		Long: "Turn a configuration of envoyproxy/ratelimit, the .yaml files in a directory, into a policy on standard\n" +
			"output. It decides about what Envoy asks of \"sluice serve --grpc\" as the configuration does. What a\n" +
			"policy cannot say is told, and left out: then the exit code is 1, and --envoy-config serves the\n" +
			"configuration as it is.",
		Example: "  sluice import envoy config/ > policy.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("import envoy: which directory? Give the one with the configuration")
			}
			return nil
		},
		PreRunE: applySettings,
		RunE: func(c *cobra.Command, args []string) error {
			if err := s.convert(c, args[0]); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	s.algorithmFlag(c.Flags())
	return c
}

func (e *envoySettings) convert(c *cobra.Command, dir string) error {
	files, err := rls.ReadDir(dir)
	if err != nil {
		return err
	}
	limits, err := rls.Read(files, sluice.Algorithm(e.algorithm))
	if err != nil {
		return err
	}
	if _, err := policy.CompileAt(limits.Document, limits.Where); err != nil {
		return err
	}
	doc, left := limits.Convert()
	text, err := policyfile.Encode("policy.yaml", doc)
	if err != nil {
		return err
	}
	if _, err := c.OutOrStdout().Write(text); err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("these are not in the policy:\n%w", policy.Errors(left))
	}
	return nil
}
