package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/cli/remote"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// diffSettings are the flags of "diff".
type diffSettings struct {
	remote.Client
	live bool
}

func diffCommand() *cobra.Command {
	s := new(diffSettings)
	c := &cobra.Command{
		Use:   "diff FILE",
		Short: "Compare a policy file with the policy that is in force",
		Long: "Show what would change if FILE replaced the policy file of a running gateway. The rules in the\n" +
			"gateway's database stay the same. \"-\" is standard input.\n\n" +
			"With --live, also try both policies on the requests of the last hour that the gateway has recorded\n" +
			"(see serve --recent), and show how many of these would newly be denied or newly be allowed, by rule,\n" +
			"tier and subject. Both policies count from zero. If some limits had been partly used when the\n" +
			"recording began, the output also has an approximate upper bound for the change.\n\n" +
			"The token needs the role operator." + remote.Help,
		Example: "  sluice diff new.yaml\n  sluice diff new.yaml --live",
		Args:    command.Args(1, 1, "diff: missing file: give one, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE:    func(c *cobra.Command, args []string) error { return s.run(c, args[0]) },
	}
	s.AddFlags(c.Flags(), "http://127.0.0.1:9090")
	c.Flags().BoolVar(&s.live, "live", false, "try the policy on the requests of the last hour")
	return c
}

func (s *diffSettings) run(c *cobra.Command, file string) error {
	if err := s.CheckOutput(); err != nil {
		return err
	}
	doc, _, err := (&policySource{file: file}).read(c, "diff")
	if err != nil {
		return err
	}
	found, err := s.Diff(c.Context(), source.Inlined(*doc), s.live)
	if err != nil {
		return err
	}
	return s.Print(c, found, func(w io.Writer) { writeDiff(w, found) })
}

func writeDiff(w io.Writer, d *control.PolicyDiff) {
	if len(d.Changes) == 0 {
		fmt.Fprintln(w, "The rules equal those in force.")
	}
	for _, change := range d.Changes {
		fmt.Fprintln(w, printable.Line(policy.Change(change).String()))
	}
	for _, r := range d.BeginsAnew {
		fmt.Fprintln(w, printable.Line(restarted(r)))
	}
	for _, warning := range d.Warnings {
		fmt.Fprintln(w, printable.Line("warning: "+warning))
	}
	if d.LastHour != nil {
		remote.WriteTrial(w, d.LastHour)
	}
}

// restarted describes a limit that starts to count from zero.
func restarted(r control.Restart) string {
	from := ""
	if r.From != "rule" {
		from = " by " + r.From
	}
	if r.Is == r.Was {
		return fmt.Sprintf("%s: counts%s start from zero, because the key has changed: %s", r.Rule, from, r.Is)
	}
	return fmt.Sprintf("%s: counts%s start from zero: %s, was %s", r.Rule, from, r.Is, r.Was)
}
