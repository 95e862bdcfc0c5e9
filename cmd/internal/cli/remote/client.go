// Package remote has a client of the admin API of a running gateway, and most commands that use it. Package cli adds
// them to the other commands.
package remote

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/policy"
)

const (
	clientTimeout = 30 * time.Second
	maxAnswer     = 64 << 20
)

// Client calls the admin API of a running gateway.
type Client struct {
	url             string
	output          string
	ca, cert, key   string
	dryRun, writing bool
}

// Help is the end of the help texts of commands that always call the admin API.
const Help = "\n\n" +
	"The command calls a running gateway at --admin-url or SLUICE_ADMIN_URL. If the gateway requires a\n" +
	"token, set SLUICE_TOKEN."

// command returns a command that calls the admin API.
func (a *Client) command(use, short, long, example string, run func(*cobra.Command, []string) error) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Long: long + Help, Example: example,
		Args: cobra.ArbitraryArgs, PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.CheckOutput(); err != nil {
				return err
			}
			return run(c, args)
		},
	}
	f := c.Flags()
	a.AddFlags(f, "http://127.0.0.1:9090")
	if a.writing {
		f.BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
	}
	return c
}

// CheckOutput checks --output.
func (a *Client) CheckOutput() error {
	if a.output != "text" && a.output != "json" {
		return fmt.Errorf("--output %.60q: write text or json", a.output)
	}
	return nil
}

// Commands returns the commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{
		healthcheckCommand(), topCommand(), overrideCommand(), subjectCommand(),
		resetCommand(), refundCommand(), blockCommand(), unblockCommand(),
	}
}

// AddFlags adds the flags of the connection and --output. url is the default of --admin-url.
func (a *Client) AddFlags(f *pflag.FlagSet, url string) {
	a.connectFlags(f, url)
	f.StringVar(&a.output, "output", "text", "text, or json in the form of the admin API")
}

// connectFlags adds the flags of the connection.
func (a *Client) connectFlags(f *pflag.FlagSet, url string) {
	f.StringVar(&a.url, "admin-url", url, "`URL` of the gateway's admin address")
	f.StringVar(&a.ca, "tls-ca", "", "`file` with the CA certificates to trust for an https admin address (default the system's)")
	f.StringVar(&a.cert, "tls-cert", "", "`file` with a client certificate, instead of a token")
	f.StringVar(&a.key, "tls-key", "", "`file` with the private key for --tls-cert")
}

// Named reports whether the client has a URL: from --admin-url, from another setting, or by default.
func (a *Client) Named() bool { return a.url != "" }

// Explain returns what the gateway would decide about a request now.
func (a *Client) Explain(ctx context.Context, r *control.CheckRequest) (*control.Explanation, error) {
	found := new(control.Explanation)
	_, err := a.call(ctx, http.MethodPost, "/v1/explain", nil, "", r, found)
	return found, err
}

// Diff compares a policy with the one in force in the gateway. If live is true, it also tries the policy on the
// latest requests.
func (a *Client) Diff(ctx context.Context, doc policy.Document, live bool) (*control.PolicyDiff, error) {
	q := url.Values{}
	if live {
		q.Set("live", "true")
	}
	found := new(control.PolicyDiff)
	_, err := a.call(ctx, http.MethodPost, "/v1/policy/diff", q, "", control.Document{Version: 1, Document: doc}, found)
	return found, err
}

type adminAnswer struct {
	status int
	etag   string
	body   []byte
}

// call sends body as JSON in a request, and decodes the answer into result. Both may be nil. If etag is not empty, it
// is the value of If-Match.
func (a *Client) call(ctx context.Context, method, path string, q url.Values, etag string, body, result any) (adminAnswer, error) {
	var answer adminAnswer
	r, err := a.request(ctx, method, path, q, body)
	if err != nil {
		return answer, err
	}
	if etag != "" {
		r.Header.Set("If-Match", etag)
	}
	if answer, err = a.send(r); err != nil {
		return answer, err
	}
	if answer.status >= 300 {
		return answer, command.Failed(a.refusal(&answer))
	}
	if result != nil {
		if err := json.Unmarshal(answer.body, result); err != nil {
			return answer, command.Failed(fmt.Errorf("%s did not answer like the admin API: check --admin-url: %w", a.url, err))
		}
	}
	return answer, nil
}

// send sends a request, and returns the answer with any status.
func (a *Client) send(r *http.Request) (answer adminAnswer, err error) {
	client, err := a.client()
	if err != nil {
		return answer, err
	}
	response, err := client.Do(r)
	if err != nil {
		return answer, a.unreachable(err)
	}
	defer response.Body.Close()
	answer.status, answer.etag = response.StatusCode, response.Header.Get("ETag")
	if answer.body, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer)); err != nil {
		return answer, command.Failed(fmt.Errorf("the answer of %s broke off: %w", a.url, err))
	}
	return answer, nil
}

func (a *Client) request(ctx context.Context, method, path string, q url.Values, in any) (*http.Request, error) {
	base, err := url.Parse(a.url)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, errors.New("--admin-url: write it as in http://127.0.0.1:9090")
	}
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return nil, command.Failed(err)
		}
		body = bytes.NewReader(text)
	}
	target := strings.TrimSuffix(a.url, "/") + path
	if len(q) > 0 {
		target += "?" + q.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, command.Failed(err)
	}
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if token := os.Getenv(command.TokenVariable); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return r, nil
}

// client returns a client that does not follow redirects, because a redirect could send the token to another host.
func (a *Client) client() (*http.Client, error) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DisableKeepAlives = true
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if a.ca != "" {
		var err error
		if config.RootCAs, err = command.CertPool("--tls-ca", a.ca); err != nil {
			return nil, err
		}
	}
	if a.cert != "" || a.key != "" {
		pair, err := tls.LoadX509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	transport.TLSClientConfig = config
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &http.Client{Transport: transport, Timeout: clientTimeout, CheckRedirect: stay}, nil
}

// unreachable returns the error for a request without an answer, with a hint.
func (a *Client) unreachable(err error) error {
	if invalid := new(url.Error); errors.As(err, &invalid) {
		err = invalid.Err
	}
	hint := "is it the admin address of a gateway?"
	if errors.Is(err, syscall.ECONNREFUSED) {
		hint = "is \"sluice serve\" running, and is this its --admin address?"
	}
	return command.Failed(fmt.Errorf("%s: %w: %s", a.url, err, hint))
}

// refusal returns the error in an answer.
func (a *Client) refusal(answer *adminAnswer) error {
	var p struct {
		Detail string
		Errors []struct{ Pointer, Parameter, Header, Detail string }
	}
	if err := json.Unmarshal(answer.body, &p); err != nil || p.Detail == "" {
		return fmt.Errorf("%s answered with status %d, but not as the admin API does: check --admin-url", a.url, answer.status)
	}
	if answer.status == http.StatusUnauthorized && os.Getenv(command.TokenVariable) == "" {
		return fmt.Errorf("authentication required: set %s to a token (see \"sluice token create\"), or use --tls-cert and --tls-key", command.TokenVariable)
	}
	if len(p.Errors) < 2 {
		where := ""
		if len(p.Errors) == 1 {
			where = strings.TrimPrefix(cmp.Or(p.Errors[0].Pointer, p.Errors[0].Parameter), "/")
		}
		if where != "" {
			where += ": "
		}
		return errors.New(where + p.Detail)
	}
	lines := make([]string, len(p.Errors))
	for i, e := range p.Errors {
		lines[i] = strings.TrimPrefix(e.Pointer, "/") + ": " + e.Detail
	}
	return errors.New(strings.Join(lines, "\n"))
}

// Print writes v as JSON if --output is json; otherwise it calls the function text.
func (a *Client) Print(c *cobra.Command, v any, text func(io.Writer)) error {
	return a.print(c, adminAnswer{body: control.JSON(v)}, text)
}

// print writes the answer if --output is json; otherwise it calls the function text.
func (a *Client) print(c *cobra.Command, answer adminAnswer, text func(io.Writer)) error {
	var b bytes.Buffer
	if a.output == "json" {
		b.Write(answer.body)
		if len(answer.body) == 0 {
			b.WriteString("{}\n")
		}
	} else {
		text(&b)
	}
	_, err := c.OutOrStdout().Write(b.Bytes())
	return command.Failed(err)
}
