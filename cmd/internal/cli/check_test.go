package cli

import (
	"bytes"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// A rule that is disabled in the database is listed, because no other output shows why it does not apply.
func TestCheckNamesDisabledRules(t *testing.T) {
	url := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	db, err := source.Open(url, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = db.Change(t.Context(), "test", func(tx *source.Tx) error {
		_, err := tx.PutRule(source.RuleRow{Rule: policy.Rule{Name: "resting", Limit: "1/day"}, Disabled: true}, source.Absent)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	c := checkCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(io.Discard)
	c.SetArgs([]string{"--rules", url, "/"})
	if err := c.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := "\n- resting          disabled in the database\n\nallowed\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q lacks %q", out.String(), want)
	}
}
