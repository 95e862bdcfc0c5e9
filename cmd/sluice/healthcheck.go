package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// healthPatience is how long a gateway may take to say that it is ready.
const healthPatience = 5 * time.Second

func healthcheckCommand() *cobra.Command {
	a := &adminClient{}
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Ask a running gateway whether it is ready",
		Long: "Ask a running gateway whether it is ready: exit code 0 if it is, and 1 if it is not or does not\n" +
			"answer within 5 s. It is for health checks of containers, where curl may be missing." + adminHelp,
		Args: flagsOnly, PreRunE: applySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			said, err := a.ready(c.Context())
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(c.OutOrStdout(), said); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	a.connectFlags(c.Flags(), "http://127.0.0.1:9090")
	return c
}

// ready returns what a gateway says that is ready.
func (a *adminClient) ready(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, healthPatience)
	defer cancel()
	r, err := a.request(ctx, http.MethodGet, "/readyz", nil, nil)
	if err != nil {
		return "", err
	}
	answer, err := a.send(r)
	if err != nil {
		return "", err
	}
	said := strings.TrimSpace(string(answer.body))
	if answer.status != http.StatusOK || said != "ready" {
		return "", &failedError{fmt.Errorf("%s: %d %s: %.200q", a.url, answer.status, http.StatusText(answer.status), said)}
	}
	return said, nil
}
