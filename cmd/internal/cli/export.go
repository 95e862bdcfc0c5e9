package cli

import (
	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policyfile"
)

func exportCommand() *cobra.Command {
	c := databaseCommand(&cobra.Command{
		Use:   "export --rules URL",
		Short: "Write a database of rules as a policy file",
		Long: "Write a database of rules as a policy file to standard output. Limits of tiers are\n" +
			"written with their rules. Disabled rules are omitted.",
		Example: "  sluice export --rules sqlite:rules.db > api.yaml",
		Args:    command.FlagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		contents, err := db.Read(c.Context())
		if err != nil {
			return err
		}
		if err := (&source.Stack{Name: db.String()}).Readable(contents); err != nil {
			return err
		}
		text, err := policyfile.Encode("export.yaml", *source.Merge(nil, contents))
		if err != nil {
			return err
		}
		_, err = c.OutOrStdout().Write(text)
		return err
	})
	c.AddCommand(exportNginxCommand())
	return c
}
