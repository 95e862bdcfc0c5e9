package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/cli/remote"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// checkSettings are the request and the policy of check.
type checkSettings struct {
	policy policySource
	method string
	header []string
	data   string
	from   string
	times  int
	admin  remote.Client
	all    bool // also show the state afterwards, and the response
	shadow bool
}

func checkCommand() *cobra.Command {
	q := &checkSettings{}
	c := &cobra.Command{
		Use:   "check [--policy FILE] [--rules URL] [--admin-url URL] [flags] URL",
		Short: "Show the decision on one request, and why",
		Long: "Show the decision of a policy on one request. For each rule, the output shows whether it applies,\n" +
			"its key, its result and why, and whether a limit comes from an override or a tier. Counters start\n" +
			"at zero, and no request is sent.\n\n" +
			"With --admin-url, a running gateway makes the decision with its current policy and counters,\n" +
			"and charges nothing. If the gateway requires a token, set SLUICE_TOKEN.\n\n" +
			"URL is a path, or a full URL if rules depend on the host. The exit code is 0 if the request\n" +
			"is allowed, and 1 if it is denied.",
		Example: "  sluice check --policy api.yaml -H 'X-API-Key: abc' /api/users\n" +
			"  sluice check --policy api.yaml --times 6 -d username=alice /auth/login\n" +
			"  sluice check --policy api.yaml --rules sqlite:rules.db /api/users\n" +
			"  sluice check --admin-url http://127.0.0.1:9090 --from 192.0.2.7 /api/users",
		Args:    command.Args(1, 1, "check: missing request: give one path or URL, for example /api/users; the policy is --policy FILE"),
		PreRunE: command.ApplySettings,
		RunE:    func(c *cobra.Command, args []string) error { return q.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&q.policy.file, "policy", "", "policy `file`, \"example\" for the built-in one, or - for standard input")
	command.AddRulesFlag(f, &q.policy.rules, ", with or without a policy file")
	f.StringVarP(&q.method, "request", "X", "", "method (default GET, and POST with --data)")
	f.StringArrayVarP(&q.header, "header", "H", nil, "header, as in 'X-API-Key: abc'; may be repeated")
	f.StringVarP(&q.data, "data", "d", "", "body; a form unless a Content-Type header is given")
	f.StringVar(&q.from, "from", "192.0.2.1", "address from which the connection comes")
	f.IntVar(&q.times, "times", 1, "number of identical requests to decide, one right after the other; the last decision is shown")
	f.BoolVarP(&q.all, "include", "i", false, "also show what each limit has left after the request, and the header fields of the response")
	q.admin.AddFlags(f, "")
	f.BoolVar(&q.shadow, "shadow", false, "put all rules into shadow mode, as \"sluice serve --shadow\" does")
	return c
}

func (q *checkSettings) run(c *cobra.Command, target string) error {
	if err := q.admin.CheckOutput(); err != nil {
		return err
	}
	asks, err := q.asksGateway(c.Flags())
	if err != nil {
		return err
	}
	r, err := q.request(target)
	if err != nil {
		return err
	}
	explain := q.explain
	if asks {
		explain = q.explainRemotely
	}
	found, err := explain(c, r)
	if err != nil {
		return err
	}
	if err := q.admin.Print(c, found, func(out io.Writer) { q.print(out, r, found) }); err != nil {
		return err
	}
	if !found.Allowed {
		return command.ErrReported
	}
	return nil
}

// asksGateway reports whether a running gateway explains the request, and not the policy of --policy and --rules.
// Flags on the command line override other settings.
func (q *checkSettings) asksGateway(f *pflag.FlagSet) (bool, error) {
	local := command.FromCommandLine(f, "policy", "rules") != ""
	remote := command.FromCommandLine(f, "admin-url") != ""
	switch {
	case remote && local:
		return false, errors.New("--admin-url: the gateway has its own policy: remove --policy and --rules")
	case !q.admin.Named() || local, !remote && q.policy.any():
		return false, nil
	case q.shadow:
		return false, errors.New("--shadow: a running gateway has its own setting for shadow mode")
	case q.times != 1:
		return false, errors.New("--times: a running gateway decides about one request and charges nothing")
	}
	return true, nil
}

// explain decides by the policy of --policy and --rules.
func (q *checkSettings) explain(c *cobra.Command, r *http.Request) (*control.Explanation, error) {
	if !q.policy.any() {
		return nil, errors.New("missing policy: give --policy FILE, or --policy example for the built-in one")
	}
	_, p, err := q.policy.read(c, command.Origin(c.Flags(), "policy"))
	if err != nil {
		return nil, err
	}
	engine := policy.NewEngine(memory.New(), p)
	if q.shadow {
		engine.ShadowAll()
	}
	decoded := control.Request(r.Method, r.URL, netip.MustParseAddr(q.from), r.Header, q.data)
	decoded.Ends = true // so that the earlier requests keep their permits
	for range q.times - 1 {
		engine.Decide(context.Background(), decoded)
	}
	found := control.Explain(context.Background(), engine, decoded, new(answer.Encoder))
	found.Disabled = q.policy.disabled
	return found, nil
}

// explainRemotely requests the decision from a running gateway.
func (q *checkSettings) explainRemotely(c *cobra.Command, r *http.Request) (*control.Explanation, error) {
	in := &control.CheckRequest{Method: r.Method, URL: r.URL.String(), Headers: map[string]string{}, Body: q.data, From: q.from}
	for name, values := range r.Header {
		if len(values) > 1 {
			return nil, fmt.Errorf("--header: %s occurs twice, and a running gateway accepts one", name)
		}
		in.Headers[name] = values[0]
	}
	return q.admin.Explain(c.Context(), in)
}

// request returns the request as a server reads it.
func (q *checkSettings) request(target string) (*http.Request, error) {
	method := q.method
	if method == "" {
		method = http.MethodGet
		if q.data != "" {
			method = http.MethodPost
		}
	}
	if strings.HasPrefix(target, "//") { // NewRequest would parse a host
		return nil, fmt.Errorf("%q: what follows \"//\" would be read as a host; if you mean this path, write http://host%s", target, target)
	}
	r, err := http.NewRequest(method, target, nil)
	if invalid := new(url.Error); errors.As(err, &invalid) {
		return nil, fmt.Errorf("%q: %w: write a path as in /api/users, or a whole URL", target, invalid.Err)
	} else if err != nil {
		return nil, fmt.Errorf("--request %q: write a method, as in POST", method)
	}
	peer, err := netip.ParseAddr(q.from)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--from %q: write an address, as in 192.0.2.1", q.from)
	case !strings.HasPrefix(r.URL.Path, "/"):
		return nil, fmt.Errorf("%q: write a path that starts with a slash, as in /api/users, or a whole URL", target)
	case q.times < 1:
		return nil, errors.New("--times must be at least 1")
	}
	r.RemoteAddr = netip.AddrPortFrom(peer, 0).String()
	for _, h := range q.header {
		name, value, found := strings.Cut(h, ":")
		if !found || name == "" {
			return nil, fmt.Errorf("--header %q: write it as in 'X-API-Key: abc'", h)
		}
		r.Header.Add(name, strings.TrimSpace(value))
	}
	if q.data != "" && r.Header.Get("Content-Type") == "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r, nil
}
