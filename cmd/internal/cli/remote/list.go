package remote

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/internal/printable"
)

// list writes a list of the API as a table, or with the JSON of each item on one line. The parameter head has the
// titles of the columns, and the function cells returns the row of an item.
func list[T any](a *Client, c *cobra.Command, path string, q url.Values, head string, cells func(source string, document *T) []string) error {
	out := c.OutOrStdout()
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if a.output == "text" {
		fmt.Fprintln(table, head)
	}
	q.Set("limit", "1000")
	for {
		var page struct {
			Items []json.RawMessage
			Next  string
		}
		if _, err := a.call(c.Context(), http.MethodGet, path, q, "", nil, &page); err != nil {
			return err
		}
		for _, text := range page.Items {
			if a.output == "json" {
				fmt.Fprintf(table, "%s\n", text)
				continue
			}
			var i struct {
				Source   string
				Document T
			}
			if err := json.Unmarshal(text, &i); err != nil {
				return command.Failed(err)
			}
			row := cells(i.Source, &i.Document)
			for n := range row {
				row[n] = printable.Line(row[n])
			}
			fmt.Fprintln(table, strings.Join(row, "\t"))
		}
		if err := table.Flush(); err != nil {
			return command.Failed(err)
		}
		if page.Next == "" {
			return nil
		}
		q.Set("cursor", page.Next)
	}
}
