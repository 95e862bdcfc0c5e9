package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/nginxlimits"
)

func exportNginxCommand() *cobra.Command {
	var from policySource
	c := &cobra.Command{
		Use:   "nginx --policy FILE",
		Short: "Write the part of a policy that nginx can enforce: limit_req by address",
		Long: "Write the part of a policy that nginx can enforce as a first line of defence in front of Sluice:\n" +
			"limit_req_zone and limit_req for rules that count every request by address or in total. For each\n" +
			"other rule, a comment states why it is missing. Include the output in the http block.",
		Example: "  sluice export nginx --policy api.yaml > /etc/nginx/conf.d/sluice-limits.conf",
		Args:    command.FlagsOnly,
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			if !from.any() {
				return errors.New("missing policy: give --policy FILE, or --rules URL for one in a database")
			}
			doc, _, err := from.read(c, command.Origin(c.Flags(), "policy"))
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(nginxlimits.Write(doc))
			return err
		},
	}
	c.Flags().StringVar(&from.file, "policy", "", "policy `file`, or - for standard input")
	command.AddRulesFlag(c.Flags(), &from.rules, ", with or without a policy file")
	return c
}
