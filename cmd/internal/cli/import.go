package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/cmd/internal/words"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// importTimeout bounds an import. On an idle machine, a hundred thousand overrides take seconds.
const importTimeout = time.Hour

// importSettings are the flags of "import".
type importSettings struct {
	policy string // the policy file that the database extends
	yes    bool
}

func importCommand() *cobra.Command {
	var s importSettings
	c := databaseCommand(&cobra.Command{
		Use:   "import --rules URL FILE",
		Short: "Make a database of rules match a policy file",
		Long: "Make a database of rules match a policy file. Entries that are missing from the file are deleted\n" +
			"from the database. Tokens are kept. \"-\" is standard input. The command shows the differences;\n" +
			"with --yes, it applies them in one transaction.",
		Example: "  sluice import --rules sqlite:rules.db api.yaml\n" +
			"  sluice import --rules sqlite:rules.db --yes api.yaml",
		Args: command.Args(1, 1, "import: missing file: give one, or - for standard input"),
	}, s.run)
	f := c.Flags()
	f.BoolVar(&s.yes, "yes", false, "make the changes, instead of only showing them")
	f.StringVar(&s.policy, "policy", "", "policy `file`, if any, that your gateways use with this database; the file and the database together must be a valid policy")
	c.AddCommand(importEnvoyCommand(), importNginxCommand(), importOpenAPICommand())
	return c
}

func (s *importSettings) run(c *cobra.Command, db *source.Database, args []string) error {
	doc, err := readDocument(args[0], c.InOrStdin())
	if err != nil {
		return command.Unreadable("import", err)
	}
	if s.policy != "" {
		file, err := readDocument(s.policy, nil)
		if err != nil {
			return command.Unreadable(command.Origin(c.Flags(), "policy"), err)
		}
		db.Check = func(contents *source.Contents) error {
			_, err := policy.Compile(*source.Merge(&file, contents))
			return err
		}
	}
	replace := func(tx *source.Tx) error { return tx.Replace(&doc) }
	ctx, cancel := context.WithTimeout(c.Context(), importTimeout)
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
		_, err := fmt.Fprintln(c.OutOrStdout(), "no differences")
		return err
	case !s.yes:
		_, err := fmt.Fprintf(c.OutOrStdout(), "%s to make%s: give --yes to make them\n", words.Counted(len(differences), "change"), deletions(differences))
		return err
	}
	version, err := s.apply(ctx, db, before.Version, replace)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.OutOrStdout(), "done: version %d\n", version)
	return err
}

// apply makes the changes, and returns the new version. It fails unless the database still has the given version, for
// which the changes were shown.
func (s *importSettings) apply(ctx context.Context, db *source.Database, version int64, replace func(*source.Tx) error) (int64, error) {
	return db.Change(ctx, actor(), func(tx *source.Tx) error {
		if tx.Contents().Version != version {
			return errors.New("the database has changed in the meantime: run the command again, and check the differences")
		}
		return replace(tx)
	})
}

// deletions describes how many of the changes are deletions, for the end of a sentence.
func deletions(all []source.Difference) string {
	n := 0
	for _, d := range all {
		if d.After == "" {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return ", among them " + words.Counted(n, "deletion") + " of entries that the file lacks"
}

// printDifferences writes new items with "+", deleted ones with "-", and changed ones with both.
func printDifferences(out io.Writer, all []source.Difference) error {
	var b bytes.Buffer
	for _, d := range all {
		switch {
		case d.After == "":
			fmt.Fprintf(&b, "- deletes %s %s %s\n", d.Kind, printable.Line(d.Target), d.Before)
		case d.Before != "":
			fmt.Fprintf(&b, "- %s %s %s\n", d.Kind, printable.Line(d.Target), d.Before)
		}
		if d.After != "" {
			fmt.Fprintf(&b, "+ %s %s %s\n", d.Kind, printable.Line(d.Target), d.After)
		}
	}
	_, err := out.Write(b.Bytes())
	return err
}
