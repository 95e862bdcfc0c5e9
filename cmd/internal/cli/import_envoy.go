package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func importEnvoyCommand() *cobra.Command {
	var algorithm command.Algorithm
	c := &cobra.Command{
		Use:   "envoy DIR",
		Short: "Turn a configuration of envoyproxy/ratelimit into a policy",
		Long: "Turn a configuration of envoyproxy/ratelimit into a policy on standard output. DIR is the directory\n" +
			"with its .yaml files. With this policy, \"sluice serve --grpc\" enforces the limits of the\n" +
			"configuration for Envoy.\n\n" +
			"Unsupported settings are reported and omitted, and the exit code is 1. To serve the configuration\n" +
			"unchanged, use \"sluice serve --envoy-config\".",
		Example: "  sluice import envoy config/ > policy.yaml",
		Args:    command.Args(1, 1, "import envoy: missing directory: give the one with the configuration"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			return command.Failed(convertEnvoy(c, args[0], sluice.Algorithm(algorithm)))
		},
	}
	command.AddEnvoyAlgorithmFlag(c.Flags(), &algorithm)
	return c
}

func convertEnvoy(c *cobra.Command, dir string, algorithm sluice.Algorithm) error {
	files, err := rls.ReadDir(dir)
	if err != nil {
		return err
	}
	limits, err := rls.Read(files, algorithm)
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
		return fmt.Errorf("these settings are not in the policy:\n%w", policy.Errors(left))
	}
	return nil
}
