package cli

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// databaseCommand adds the flag --rules to a command, and opens the database for the function run.
func databaseCommand(c *cobra.Command, run func(*cobra.Command, *source.Database, []string) error) *cobra.Command {
	var url string
	command.AddRulesFlag(c.Flags(), &url, "")
	c.PreRunE = command.ApplySettings
	c.RunE = func(c *cobra.Command, args []string) error {
		if url == "" {
			return errors.New("missing database: give --rules URL, as in sqlite:rules.db or postgres://user@host/name")
		}
		db, err := source.Open(url, slog.New(slog.DiscardHandler))
		if err != nil {
			return fmt.Errorf("%s: %w", command.Origin(c.Flags(), "rules"), err)
		}
		err = run(c, db, args)
		return command.Failed(errors.Join(err, db.Close()))
	}
	return c
}

// actor returns the name of the user for the audit log.
func actor() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	return "command line: " + cmp.Or(name, "unknown")
}
