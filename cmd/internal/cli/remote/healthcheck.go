package remote

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
)

// healthTimeout bounds the wait for the answer of a gateway.
const healthTimeout = 5 * time.Second

func healthcheckCommand() *cobra.Command {
	a := &Client{}
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Check whether a running gateway is ready",
		Long: "Check whether a running gateway is ready. The exit code is 0 if it is, and 1 if it is not or does\n" +
			"not answer within 5 s. This is for health checks of containers, which may lack curl.\n\n" +
			"The command calls a running gateway at --admin-url or SLUICE_ADMIN_URL. It needs no token.",
		Args: command.FlagsOnly, PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := a.ready(c.Context())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), text)
			return command.Failed(err)
		},
	}
	a.connectFlags(c.Flags(), "http://127.0.0.1:9090")
	return c
}

// ready returns the answer of a gateway that is ready.
func (a *Client) ready(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	r, err := a.request(ctx, http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		return "", err
	}
	answer, err := a.send(r)
	if err != nil {
		return "", err
	}
	text := strings.TrimSpace(string(answer.body))
	if answer.status != http.StatusOK || text != "ready" {
		return "", command.Failed(fmt.Errorf("%s: %d %s: %.200q", a.url, answer.status, http.StatusText(answer.status), text))
	}
	return text, nil
}
