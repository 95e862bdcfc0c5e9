package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/examples"
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// checked is a request as the flags of check describe it.
type checked struct {
	policy string
	rules  string
	method string
	header []string
	data   string
	from   string
	times  int
}

func checkCommand() *cobra.Command {
	q := &checked{}
	c := &cobra.Command{
		Use:   "check [--policy FILE] [--rules URL] [flags] URL",
		Short: "Show what a policy decides about one request, and why",
		Long: "Show what a policy decides about one request: which rules apply, under which keys they\n" +
			"count, what each says, and why, with the override or the tier that a limit is from. An end date\n" +
			"without a time is the end of that day in UTC. Counters start at zero; nothing is sent anywhere.\n\n" +
			"URL is a path, or a full URL if rules look at the host. The exit code is 0 if the request\n" +
			"passes, and 1 if it is refused.",
		Example: "  sluice check --policy api.yaml -H 'X-API-Key: abc' /api/users\n" +
			"  sluice check --policy api.yaml --times 6 -d username=alice /auth/login\n" +
			"  sluice check --policy api.yaml --rules sqlite:rules.db /api/users",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("check: which request? Give one path or URL, for example /api/users; the policy is --policy FILE")
			}
			return nil
		},
		PreRunE: applySettings,
		RunE:    func(c *cobra.Command, args []string) error { return q.run(c, args[0]) },
	}
	f := c.Flags()
	f.StringVar(&q.policy, "policy", "", "policy `file`, \"example\" for the built-in one, or - for standard input")
	rulesFlag(f, &q.rules, "where more rules are, on top of the file's or alone")
	f.StringVarP(&q.method, "request", "X", "", "method (default GET, and POST with --data)")
	f.StringArrayVarP(&q.header, "header", "H", nil, "header, as in 'X-API-Key: abc'; may be repeated")
	f.StringVarP(&q.data, "data", "d", "", "body, a form if no Content-Type says otherwise")
	f.StringVar(&q.from, "from", "192.0.2.1", "address the connection comes from")
	f.IntVar(&q.times, "times", 1, "make this many such requests at once, and show the last")
	return c
}

func (q *checked) run(c *cobra.Command, target string) error {
	r, err := q.request(target)
	if err != nil {
		return err
	}
	p, err := q.load(c)
	if err != nil {
		return err
	}
	engine := policy.NewEngine(memory.New(), p)
	asked := q.decode(r)
	for range q.times - 1 {
		engine.Decide(context.Background(), asked)
	}
	trace := engine.Explain(context.Background(), asked)
	var out bytes.Buffer
	fmt.Fprintf(&out, "%s %s from %s%s\n\n", r.Method, r.URL, trace.Client, tierOf(&trace))
	outages := p.Outages()
	for i, rule := range trace.Rules {
		printRule(&out, rule, outages[i])
	}
	printDecision(&out, trace.Decision)
	printOwn(&out, p, r.Header, &trace.Decision)
	if _, err := c.OutOrStdout().Write(out.Bytes()); err != nil {
		return &failedError{err}
	}
	if !trace.Decision.Allowed {
		return &exitError{exitFailed}
	}
	return nil
}

// load reads the policy that the request is to be checked against.
func (q *checked) load(c *cobra.Command) (*policy.Policy, error) {
	if q.rules != "" {
		return q.loadRules(c)
	}
	p, err := loadPolicy(q.policy, c.InOrStdin())
	if err != nil && q.policy != "" {
		return nil, &failedError{unreadable(origin(c.Flags(), "policy"), err)}
	}
	return p, err
}

// loadRules reads what a database says, on top of the file if there is one.
func (q *checked) loadRules(c *cobra.Command) (*policy.Policy, error) {
	db, err := source.Open(q.rules, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin(c.Flags(), "rules"), err)
	}
	defer func() { _ = db.Close() }()
	stack := &source.Stack{Name: db.String(), Swap: func(*policy.Policy) {}}
	if q.policy != "" {
		err := readTo(q.policy, c.InOrStdin(), stack.File)
		if err == nil {
			err = stack.UseFile()
		}
		if err != nil {
			return nil, &failedError{unreadable(origin(c.Flags(), "policy"), err)}
		}
	}
	contents, err := db.Read(c.Context())
	if err == nil {
		err = stack.Contents(contents)
	}
	if err != nil {
		return nil, &failedError{err}
	}
	return stack.Policy(), nil
}

// stdin is the word for standard input in place of a file.
const stdin = "-"

// loadFile reads a policy from a file, or from in if the name is [stdin].
func loadFile(name string, in io.Reader) (*policy.Policy, error) {
	if name != stdin {
		return policyfile.Load(name)
	}
	data, err := io.ReadAll(io.LimitReader(in, policyfile.MaxDocument+1))
	if err != nil {
		return nil, err
	}
	return policyfile.ParseWith("stdin", data, policyfile.ReadFile)
}

// loadPolicy reads a policy as loadFile does, or the built-in one.
func loadPolicy(name string, in io.Reader) (*policy.Policy, error) {
	switch name {
	case "":
		return nil, errors.New("which policy? Give --policy FILE, or --policy example for the built-in one")
	case examplePolicy:
		return policyfile.Parse("examples/api.yaml", examples.API)
	}
	return loadFile(name, in)
}

// request makes what a server would have read.
func (q *checked) request(target string) (*http.Request, error) {
	method := q.method
	if method == "" {
		method = http.MethodGet
		if q.data != "" {
			method = http.MethodPost
		}
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
		return nil, fmt.Errorf("%q: write a path that begins with a slash, as in /api/users, or a whole URL", target)
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

func (q *checked) decode(r *http.Request) *policy.Request {
	return &policy.Request{
		Method:   r.Method,
		Host:     r.Host,
		Path:     r.URL.EscapedPath(),
		RawQuery: r.URL.RawQuery,
		Peer:     netip.MustParseAddr(q.from),
		Header:   r.Header,
		Body: func(limit int64) ([]byte, error) {
			if int64(len(q.data)) > limit {
				return nil, nil
			}
			return []byte(q.data), nil
		},
	}
}

// tierOf says which tier the request has, if a rule asks for that, and what says so.
func tierOf(t *policy.Trace) string {
	switch {
	case t.TierFrom == "":
		return ""
	case t.Tier == "":
		return ", no tier"
	}
	from := t.TierFrom
	if by := t.TierSubject; by != nil {
		from += inSource(by.Source) + by.Terms()
	}
	return fmt.Sprintf(", tier %s from %s", t.Tier, from)
}

func printRule(out io.Writer, rule policy.RuleTrace, outage policy.Outage) {
	mark := "-"
	if rule.Applies {
		mark = "*"
	}
	fmt.Fprintf(out, "%s %-16s %s%s\n", mark, rule.Rule, rule.Why, inSource(rule.Source))
	if len(rule.Results) == 0 {
		return
	}
	fmt.Fprintf(out, "  %-16s key    %s\n", "", rule.Key)
	for i := range rule.Results {
		r := &rule.Results[i]
		from := r.From + inSource(r.Source)
		if rule.Override != nil {
			from += rule.Override.Terms()
		}
		fmt.Fprintf(out, "  %-16s limit  %v, %v, from the %s\n", "", r.Plan.Limit, r.Plan.Limit.Algorithm, from)
		fmt.Fprintf(out, "  %-16s says   %s\n", "", verdict(r))
	}
	if rule.Then != "" {
		fmt.Fprintf(out, "  %-16s then   %s\n", "", rule.Then)
	}
	fmt.Fprintf(out, "  %-16s outage %s\n", "", inOutage(outage))
}

// inSource says where a rule or an override is from, if more than one place can have it.
func inSource(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}

// verdict puts what a rule says into words.
func verdict(r *policy.Result) string {
	s := fmt.Sprintf("fits: it costs %d of %d", r.Cost, r.Remaining)
	switch {
	case !r.Allowed && r.RetryAfter == sluice.Never:
		s = fmt.Sprintf("refuses: a cost of %d can never fit", r.Cost)
	case r.Locked:
		s = fmt.Sprintf("refuses: locked out for exceeding it, for another %v", short(r.RetryAfter))
	case !r.Allowed:
		s = fmt.Sprintf("refuses: it costs %d of %d, and fits in %v", r.Cost, r.Remaining, short(r.RetryAfter))
	case r.Delay > 0:
		s += fmt.Sprintf(", and waits %v for its turn", short(r.Delay))
	}
	if r.Shadow {
		s += " (only watched: a shadow never refuses)"
	}
	return s
}

func printDecision(out io.Writer, d policy.Decision) {
	switch {
	case d.Exempt:
		fmt.Fprintln(out, "\npasses: exempt, nothing is counted")
	case d.Blocked != "":
		fmt.Fprintf(out, "\nrefused: rule %q blocks the request\n", d.Blocked)
	case d.Missing != "":
		fmt.Fprintf(out, "\nrefused: it lacks %s\n", d.Missing)
	case d.Allowed && d.Delay > 0:
		fmt.Fprintf(out, "\npasses after %v\n", short(d.Delay))
	case d.Allowed:
		fmt.Fprintln(out, "\npasses")
	case d.RetryAfter == sluice.Never:
		fmt.Fprintln(out, "\nrefused, always")
	default:
		fmt.Fprintf(out, "\nrefused: try again in %v\n", short(d.RetryAfter))
	}
}

// short rounds up to what people read.
func short(d time.Duration) time.Duration {
	unit := time.Millisecond
	if d > time.Second {
		unit = time.Second
	}
	return (d + unit - 1).Truncate(unit)
}
