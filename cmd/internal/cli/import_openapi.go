package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/openapi"
)

func importOpenAPICommand() *cobra.Command {
	return &cobra.Command{
		Use:   "openapi FILE",
		Short: "Turn an OpenAPI document into a policy",
		Long: "Turn an OpenAPI document into a policy on standard output, with rules for its operations. \"-\" is\n" +
			"standard input. The document is YAML or JSON in version 3.0 to 3.2, or Swagger 2.0.\n\n" +
			"Limits come from x-ratelimit and similar extensions, and from extensions of Kuadrant, Kong, Kusk,\n" +
			"APISIX, Tyk, Google, Yandex and Huawei. For an operation without a limit, the command proposes a rule\n" +
			"in shadow mode, which denies nothing. Unless the extension sets a key, rules count by the credentials\n" +
			"that the operation requires; if it requires none, they count by address. Settings that a policy\n" +
			"cannot express are listed in comments next to the rule.\n\n" +
			"Paths that the document takes from other files are reported and omitted, and the exit code is 1.",
		Example: "  sluice import openapi openapi.yaml > policy.yaml",
		Args:    command.Args(1, 1, "import openapi: missing document: give one file, or - for standard input"),
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := readOpenAPI(args[0], c.InOrStdin())
			if err != nil {
				return command.Failed(command.Unreadable("import openapi", err))
			}
			return command.Failed(convertOpenAPI(c.OutOrStdout(), d))
		},
	}
}

func convertOpenAPI(out io.Writer, d *openapi.Document) error {
	p, err := d.Policy()
	if err != nil {
		return err
	}
	if err := p.WriteYAML(out); err != nil {
		return err
	}
	if len(p.Left) > 0 {
		return fmt.Errorf("these settings are not in the policy:\n%w", p.Left)
	}
	return nil
}

// readOpenAPI reads a document from the named file or, if the name is [command.Stdin], from the given reader.
func readOpenAPI(name string, in io.Reader) (*openapi.Document, error) {
	if name == command.Stdin {
		name = "stdin"
	} else {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(io.LimitReader(in, openapi.MaxDocument+1))
	if err != nil {
		return nil, err
	}
	return openapi.Read(name, data)
}
