package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

func migrateCommand() *cobra.Command {
	return databaseCommand(&cobra.Command{
		Use:   "migrate --rules URL",
		Short: "Create or update the tables of a database of rules",
		Long: "Create or update the tables of a database of rules. \"sluice serve\" does this itself; run\n" +
			"\"sluice migrate\" first if the database user of serve has no right to create tables. Migrations\n" +
			"cannot be undone. Several processes can migrate at the same time.",
		Example: "  sluice migrate --rules sqlite:rules.db",
		Args:    command.FlagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		steps, err := db.Migrate(c.Context())
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.OutOrStdout(), "%s: %s made\n", db, words.Counted(steps, "migration"))
		return err
	})
}
