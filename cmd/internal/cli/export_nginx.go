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
		Short: "Write what nginx can do of a policy by itself: limit_req by address",
		Long: "Write what nginx can do of a policy by itself, as an outer wall in front of Sluice: limit_req_zone\n" +
			"and limit_req for the rules that count every request by its address, or all together. Of each other\n" +
			"rule a comment says why it is not there. It is for the http block.",
		Example: "  sluice export nginx --policy api.yaml > /etc/nginx/conf.d/sluice-limits.conf",
		Args:    command.FlagsOnly,
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			if !from.any() {
				return errors.New("which policy? Give --policy FILE, or --rules URL for one in a database")
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
