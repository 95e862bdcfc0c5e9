package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// held is an item that the gateway has: its path, its ETag, and a description.
type held struct{ path, etag, text string }

// find decodes the item at a path into the parameter document, and returns the item without its description. It
// returns nil if the item is missing.
func (a *Client) find(ctx context.Context, path string, document any) (*held, error) {
	answer, err := a.call(ctx, http.MethodGet, path, nil, "", nil, document)
	switch {
	case answer.status == http.StatusNotFound:
		return nil, nil
	case err != nil:
		return nil, err
	}
	return &held{path: path, etag: answer.etag}, nil
}

// put replaces the item old or, if old is nil, creates an item in a collection. The parameter text describes the new
// item.
func (a *Client) put(c *cobra.Command, collection string, old *held, document any, text string) error {
	method, path, etag := http.MethodPost, collection, ""
	if old != nil {
		method, path, etag = http.MethodPut, old.path, old.etag
	}
	answer, err := a.call(c.Context(), method, path, a.changeQuery(), etag, document, nil)
	if err != nil {
		return err
	}
	return a.print(c, answer, func(out io.Writer) {
		if old != nil {
			fmt.Fprintf(out, "%s %s\n", a.tense("was", "is"), old.text)
		}
		fmt.Fprintf(out, "%s %s\n", a.tense("is", "would be"), text)
		a.writeTrial(out, &answer)
	})
}

// remove deletes an item.
func (a *Client) remove(c *cobra.Command, old *held) error {
	answer, err := a.call(c.Context(), http.MethodDelete, old.path, a.changeQuery(), old.etag, nil, nil)
	if err != nil {
		return err
	}
	return a.print(c, answer, func(out io.Writer) {
		fmt.Fprintf(out, "%s %s\n", a.tense("deleted", "would delete"), old.text)
		a.writeTrial(out, &answer)
	})
}

// writeTrial writes the effect that the change of a dry run would have had on the requests of the last hour, if the
// answer contains this effect.
func (a *Client) writeTrial(w io.Writer, answer *adminAnswer) {
	var would control.Difference
	if a.dryRun && json.Unmarshal(answer.body, &would) == nil && would.LastHour != nil {
		WriteTrial(w, would.LastHour)
	}
}

// changeQuery returns the query of a change.
func (a *Client) changeQuery() url.Values {
	if a.dryRun {
		return url.Values{"dry_run": {"true"}}
	}
	return url.Values{}
}

// tense returns the first text, or the second in a dry run, with a colon.
func (a *Client) tense(done, dry string) string {
	if a.dryRun {
		return dry + ":"
	}
	return done + ":"
}
