// Package cli is the command line of sluice, with the commands for policies, access logs and databases of rules. It
// imports package server with the command serve, package remote with most commands that call the admin API of
// a running gateway, and package command with the parts that all commands share.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/cli/remote"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/server"
)

// Main runs the command that the command line names, and returns the exit code.
func Main(b Build) int { return command.Execute(rootCommand(b)) }

func rootCommand(b Build) *cobra.Command {
	root := &cobra.Command{
		Use:     "sluice",
		Short:   "Limit the traffic of an API",
		Long:    "Sluice is a rate limiter. It runs as a gateway, or as a decision service for proxies and programs.",
		Version: b.line(),
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddCommand(server.Command(b.version()), validateCommand(), checkCommand(), describeCommand(), diffCommand(), replayCommand(), recommendCommand())
	root.AddCommand(migrateCommand(), exportCommand(), importCommand(), tokenCommand(), versionCommand(b))
	root.AddCommand(remote.Commands()...)
	return root
}
