package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
)

func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Create, list and delete tokens of the admin API",
		Long: "Create, list and delete tokens of the admin API, in the database of rules. Each token has a role:\n\n" +
			"  viewer     read\n" +
			"  operator   also change subjects and overrides, reset, refund, block, silence alerts and compare policies\n" +
			"  admin      everything",
	}
	c.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand())
	return c
}

func tokenCreateCommand() *cobra.Command {
	var name, role, until string
	c := databaseCommand(&cobra.Command{
		Use:   "create --rules URL --role ROLE --name NAME",
		Short: "Create a token and print it; only its hash is stored",
		Long: "Create a token and print it to standard output. The database stores only the hash of the token, so\n" +
			"the token cannot be shown again. Callers of the admin API send it as \"Authorization: Bearer …\".\n" +
			"Commands read the token from SLUICE_TOKEN.",
		Example: "  sluice token create --rules sqlite:rules.db --role operator --name ci",
		Args:    command.FlagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		secret, err := createToken(c.Context(), db, name, source.Role(role), until)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), secret)
		return err
	})
	f := c.Flags()
	f.StringVar(&name, "name", "", "`name` of the token; the audit log records it with each change")
	f.StringVar(&role, "role", "", "viewer, operator or admin")
	f.StringVar(&until, "until", "", "`time` of expiry, as in 2027-01-31T12:00:00Z, or 2027-01-31 for the end of that day in UTC (default never)")
	// The error is only for an unknown flag.
	_ = c.RegisterFlagCompletionFunc("role", cobra.FixedCompletions([]string{"viewer", "operator", "admin"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

func createToken(ctx context.Context, db *source.Database, name string, role source.Role, until string) (secret string, err error) {
	_, err = db.Change(ctx, actor(), func(tx *source.Tx) (err error) {
		secret, _, err = tx.CreateToken(name, role, until)
		return err
	})
	if invalid, ok := errors.AsType[*source.Invalid](err); ok {
		return "", fmt.Errorf("--%s: %s", invalid.Field, invalid.Message)
	}
	if _, ok := errors.AsType[*source.Conflict](err); ok {
		return "", fmt.Errorf("--name: the token %q exists: delete it, or give another name", name)
	}
	return secret, err
}

func tokenListCommand() *cobra.Command {
	return databaseCommand(&cobra.Command{
		Use: "list --rules URL", Short: "List the tokens, without their secrets", Args: command.FlagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		contents, err := db.Read(c.Context())
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tROLE\tUNTIL\tMADE")
		for i := range contents.Tokens {
			t := &contents.Tokens[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", printable.Line(t.Name), t.Role, cmp.Or(t.Until, "-"), t.CreatedAt.Format("2006-01-02"))
		}
		return table.Flush()
	})
}

func tokenDeleteCommand() *cobra.Command {
	return databaseCommand(&cobra.Command{
		Use: "delete --rules URL NAME", Short: "Delete a token; gateways reject it within a second",
		Args: command.Args(1, 1, "token delete: missing token: give its name"),
	}, func(c *cobra.Command, db *source.Database, args []string) error {
		_, err := db.Change(c.Context(), actor(), func(tx *source.Tx) error { return tx.DeleteToken(args[0], source.Any) })
		return err
	})
}
