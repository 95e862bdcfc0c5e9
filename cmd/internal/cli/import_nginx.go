package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/nginxlimits"
	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/cmd/internal/words"
)

func importNginxCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "nginx FILE…",
		Short: "Turn limit_req and limit_conn of nginx into a policy",
		Long: "Turn limit_req and limit_conn of an nginx configuration into a policy on standard output. Included\n" +
			"files are read too. Each file is a whole configuration, or the contents of the http block. \"-\" is\n" +
			"standard input. Settings that a policy cannot express become comments that name the line.",
		Example: "  sluice import nginx /etc/nginx/nginx.conf > policy.yaml\n" +
			"  nginx -T | sluice import nginx - > policy.yaml",
		Args:    command.Args(1, 1000, "import nginx: missing file: give nginx.conf, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			return command.Failed(convertNginx(c, args))
		},
	}
}

func convertNginx(c *cobra.Command, names []string) error {
	var files conf.Files
	for _, name := range names {
		if err := addFile(&files, name, c.InOrStdin()); err != nil {
			return err
		}
	}
	im, err := nginxlimits.Import(&files)
	if err != nil {
		return err
	}
	text, err := im.Text(names)
	if err != nil {
		return err
	}
	if _, err = c.OutOrStdout().Write(text); err != nil || len(im.Untranslated) == 0 {
		return err
	}
	if len(im.Document.Rules) == 0 {
		return fmt.Errorf("%s: no limit was translated: see the comments at the start of the policy", strings.Join(names, ", "))
	}
	_, err = fmt.Fprintf(c.ErrOrStderr(), "%s not translated: see the comments at the start of the policy\n", words.Counted(len(im.Untranslated), "setting"))
	return err
}

func addFile(files *conf.Files, name string, in io.Reader) error {
	if name != command.Stdin {
		return files.Add(name)
	}
	text, err := conf.Read(in)
	if err != nil {
		return err
	}
	return files.AddText("standard input", text)
}
