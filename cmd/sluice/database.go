package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// rulesFlag is where the database of rules is.
func rulesFlag(f *pflag.FlagSet, url *string, what string) {
	f.StringVar(url, "rules", "", what+": the `URL` of a database, as in sqlite:rules.db or postgres://user@host/name;\nits password is better in SLUICE_RULES, PGPASSWORD or ~/.pgpass than on the command line")
}

// database is a command on a database of rules.
type database struct{ url string }

// command makes one that opens the database for run. Args checks what is not a flag.
func (d *database) command(c *cobra.Command, run func(*cobra.Command, *source.Database, []string) error) *cobra.Command {
	rulesFlag(c.Flags(), &d.url, "where the rules are")
	c.PreRunE = applySettings
	c.RunE = func(c *cobra.Command, args []string) error {
		if d.url == "" {
			return errors.New("which database? Give --rules URL, as in sqlite:rules.db or postgres://user@host/name")
		}
		db, err := source.Open(d.url, slog.New(slog.DiscardHandler))
		if err != nil {
			return fmt.Errorf("%s: %w", origin(c.Flags(), "rules"), err)
		}
		err = run(c, db, args)
		if err = errors.Join(err, db.Close()); err != nil {
			return &failedError{err}
		}
		return nil
	}
	return c
}

func migrateCommand() *cobra.Command {
	d := &database{}
	return d.command(&cobra.Command{
		Use:   "migrate --rules URL",
		Short: "Create the tables of a database of rules, or bring them up to date",
		Long: "Create the tables of a database of rules, or bring them up to date. \"sluice serve\" does so by\n" +
			"itself; do it before where that has no right to make tables. It goes forward only, and several\n" +
			"may run at once.",
		Example: "  sluice migrate --rules sqlite:rules.db",
		Args:    flagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		steps, err := db.Migrate(c.Context())
		if err != nil {
			return err
		}
		return say(c.OutOrStdout(), "%s: %s made\n", db, counted(steps, "migration"))
	})
}

func exportCommand() *cobra.Command {
	d := &database{}
	c := d.command(&cobra.Command{
		Use:   "export --rules URL",
		Short: "Write a database of rules as a policy file",
		Long: "Write a database of rules as a policy file, to standard output. Limits of tiers are\n" +
			"in their rules there, and rules that are disabled are left out.",
		Example: "  sluice export --rules sqlite:rules.db > api.yaml",
		Args:    flagsOnly,
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

// importPatience is how long an import may take: a hundred thousand overrides take seconds on a
// machine that has nothing else to do.
const importPatience = time.Hour

// importing is a policy file that a database is to say.
type importing struct {
	database
	beneath string
	yes     bool
}

func importCommand() *cobra.Command {
	i := &importing{}
	c := i.command(&cobra.Command{
		Use:   "import --rules URL FILE",
		Short: "Make a database of rules match a policy file",
		Long: "Make a database of rules match a policy file, and nothing else: what is not in the file\n" +
			"is deleted from the database. \"-\" is standard input. What differs is shown, and done only with\n" +
			"--yes, in one transaction. Tokens stay.",
		Example: "  sluice import --rules sqlite:rules.db api.yaml\n" +
			"  sluice import --rules sqlite:rules.db --yes api.yaml",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("import: which file? Give one, or - for standard input")
			}
			return nil
		},
	}, i.run)
	f := c.Flags()
	f.BoolVar(&i.yes, "yes", false, "make the changes, instead of only showing them")
	f.StringVar(&i.beneath, "policy", "", "policy `file` that the gateways combine with the database, if any: the two must form a valid policy together")
	c.AddCommand(importEnvoyCommand())
	return c
}

func (i *importing) run(c *cobra.Command, db *source.Database, args []string) error {
	doc, err := readDocument(args[0], c.InOrStdin())
	if err != nil {
		return unreadable("import", err)
	}
	if i.beneath != "" {
		file, err := readDocument(i.beneath, nil)
		if err != nil {
			return unreadable(origin(c.Flags(), "policy"), err)
		}
		db.Check = func(contents *source.Contents) error {
			_, err := policy.Compile(*source.Merge(&file, contents))
			return err
		}
	}
	replace := func(tx *source.Tx) error { return tx.Replace(&doc) }
	ctx, cancel := context.WithTimeout(c.Context(), importPatience)
	defer cancel()
	before, after, err := db.DryRun(ctx, actor(), replace)
	if err != nil {
		return err
	}
	differences := source.Diff(before, after)
	if err := printDifferences(c.OutOrStdout(), differences); err != nil {
		return err
	}
	switch {
	case len(differences) == 0:
		return say(c.OutOrStdout(), "nothing differs\n")
	case !i.yes:
		return say(c.OutOrStdout(), "%s to make%s: give --yes to make them\n", counted(len(differences), "change"), deletionsAmong(differences))
	}
	return i.apply(ctx, c.OutOrStdout(), db, before.Version, replace)
}

// apply makes the changes that were shown.
func (i *importing) apply(ctx context.Context, out io.Writer, db *source.Database, seen int64, replace func(*source.Tx) error) error {
	version, err := db.Change(ctx, actor(), func(tx *source.Tx) error {
		if tx.Contents().Version != seen {
			return errors.New("somebody has changed the database in between: run it again, and look at what differs then")
		}
		return replace(tx)
	})
	if err != nil {
		return err
	}
	return say(out, "done: version %d\n", version)
}

// readDocument reads a policy file with its lists, and what is wrong with how it is written.
func readDocument(name string, in io.Reader) (doc policy.Document, err error) {
	err = readTo(name, in, func(d policy.Document, _ func(string) (string, int)) (*policy.Policy, error) {
		doc = d
		return nil, nil
	})
	return doc, err
}

// readTo reads a policy file, or in if the name is [stdin], and compiles it.
func readTo(name string, in io.Reader, compile func(policy.Document, func(string) (string, int)) (*policy.Policy, error)) error {
	data, shown, err := []byte(nil), name, error(nil)
	if name == stdin {
		shown = "stdin"
		data, err = io.ReadAll(io.LimitReader(in, policyfile.MaxDocument+1))
	} else {
		data, err = policyfile.ReadFile(name)
	}
	if err == nil {
		_, err = policyfile.ParseTo(shown, data, policyfile.ReadFile, compile)
	}
	return err
}

// deletionsAmong says how many of the changes delete what the file lacks.
func deletionsAmong(all []source.Difference) string {
	n := 0
	for _, d := range all {
		if d.After == "" {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return ", among them " + counted(n, "deletion") + " of what the file lacks"
}

// printDifferences shows what is new with "+", what is deleted with "-", and both for what changes.
func printDifferences(out io.Writer, all []source.Difference) error {
	var b bytes.Buffer
	for _, d := range all {
		switch {
		case d.After == "":
			fmt.Fprintf(&b, "- deletes %s %s %s\n", d.Kind, plainText(d.Target), d.Before)
		case d.Before != "":
			fmt.Fprintf(&b, "- %s %s %s\n", d.Kind, plainText(d.Target), d.Before)
		}
		if d.After != "" {
			fmt.Fprintf(&b, "+ %s %s %s\n", d.Kind, plainText(d.Target), d.After)
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}

// actor is whom the audit log names.
func actor() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	return "command line: " + cmp.Or(name, "unknown")
}

func say(out io.Writer, format string, args ...any) error {
	_, err := fmt.Fprintf(out, format, args...)
	return err
}

func tokenCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "token",
		Short: "Make, list and delete the tokens of the admin API",
		Long: "Make, list and delete the tokens of the admin API, in the database of rules. A viewer may look,\n" +
			"an operator also change subjects and overrides, reset, refund and block, and an admin everything.",
	}
	c.AddCommand(tokenCreateCommand(), tokenListCommand(), tokenDeleteCommand())
	return c
}

func tokenCreateCommand() *cobra.Command {
	d := &database{}
	var name, role, until string
	c := d.command(&cobra.Command{
		Use:   "create --rules URL --role ROLE --name NAME",
		Short: "Make a token, and print it: it is kept nowhere, and never shown again",
		Long: "Make a token, and print it to standard output: the database has only its hash, so it is never\n" +
			"shown again. Callers of the admin API send it as \"Authorization: Bearer …\", and the commands\n" +
			"take it from SLUICE_TOKEN.",
		Example: "  sluice token create --rules sqlite:rules.db --role operator --name ci",
		Args:    flagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		secret, err := createToken(c.Context(), db, name, source.Role(role), until)
		if err != nil {
			return err
		}
		return say(c.OutOrStdout(), "%s\n", secret)
	})
	f := c.Flags()
	f.StringVar(&name, "name", "", "`name` of the token, under which the audit log records its use")
	f.StringVar(&role, "role", "", "viewer, operator or admin")
	f.StringVar(&until, "until", "", "when it ends, as in 2027-01-31T12:00:00Z, or 2027-01-31 for the `end` of that day in UTC (default never)")
	// It fails only for a flag that there is not.
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
		return "", fmt.Errorf("--name: there is a token %q: delete it, or give another name", name)
	}
	return secret, err
}

func tokenListCommand() *cobra.Command {
	d := &database{}
	return d.command(&cobra.Command{
		Use: "list --rules URL", Short: "List the tokens, without their secrets", Args: flagsOnly,
	}, func(c *cobra.Command, db *source.Database, _ []string) error {
		contents, err := db.Read(c.Context())
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "NAME\tROLE\tUNTIL\tMADE")
		for i := range contents.Tokens {
			t := &contents.Tokens[i]
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", plainText(t.Name), t.Role, cmp.Or(t.Until, "-"), t.CreatedAt.Format("2006-01-02"))
		}
		return table.Flush()
	})
}

func tokenDeleteCommand() *cobra.Command {
	d := &database{}
	return d.command(&cobra.Command{
		Use: "delete --rules URL NAME", Short: "Delete a token: gateways refuse it within a second",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("token delete: which token? Give its name")
			}
			return nil
		},
	}, func(c *cobra.Command, db *source.Database, args []string) error {
		_, err := db.Change(c.Context(), actor(), func(tx *source.Tx) error { return tx.DeleteToken(args[0], source.Any) })
		return err
	})
}
