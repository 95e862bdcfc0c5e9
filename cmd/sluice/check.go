package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/examples"
	"github.com/sluicehq/sluice/internal/control"
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
	admin  adminClient
	whole  bool
	shadow bool
}

func checkCommand() *cobra.Command {
	q := &checked{}
	c := &cobra.Command{
		Use:   "check [--policy FILE] [--rules URL] [--admin-url URL] [flags] URL",
		Short: "Show what is decided about one request, and why",
		Long: "Show what a policy decides about one request: which rules apply, under which keys they\n" +
			"count, what each says, and why, with the override or the tier that a limit is from. An end date\n" +
			"without a time is the end of that day in UTC. Counters start at zero; nothing is sent anywhere.\n\n" +
			"With --admin-url, a running gateway says what it would decide now, by the policy that is in\n" +
			"force there and by its counts, and takes nothing. Its token is in SLUICE_TOKEN if it needs one.\n\n" +
			"URL is a path, or a full URL if rules look at the host. The exit code is 0 if the request\n" +
			"passes, and 1 if it is refused.",
		Example: "  sluice check --policy api.yaml -H 'X-API-Key: abc' /api/users\n" +
			"  sluice check --policy api.yaml --times 6 -d username=alice /auth/login\n" +
			"  sluice check --policy api.yaml --rules sqlite:rules.db /api/users\n" +
			"  sluice check --admin-url http://127.0.0.1:9090 --from 192.0.2.7 /api/users",
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
	rulesFlag(f, &q.rules, "where more rules are, in addition to the file's or alone")
	f.StringVarP(&q.method, "request", "X", "", "method (default GET, and POST with --data)")
	f.StringArrayVarP(&q.header, "header", "H", nil, "header, as in 'X-API-Key: abc'; may be repeated")
	f.StringVarP(&q.data, "data", "d", "", "body, a form if no Content-Type says otherwise")
	f.StringVar(&q.from, "from", "192.0.2.1", "address the connection comes from")
	f.IntVar(&q.times, "times", 1, "make this many such requests at once, and show the last")
	f.BoolVarP(&q.whole, "include", "i", false, "also show what is left afterwards, and what the response would have")
	q.admin.flags(f, "")
	f.BoolVar(&q.shadow, "shadow", false, "check as \"sluice serve --shadow\" would decide, which refuses nothing")
	return c
}

func (q *checked) run(c *cobra.Command, target string) error {
	if err := q.admin.checkOutput(); err != nil {
		return err
	}
	remote, err := q.remote(c.Flags())
	if err != nil {
		return err
	}
	r, err := q.request(target)
	if err != nil {
		return err
	}
	explain := q.explain
	if remote {
		explain = q.ask
	}
	found, err := explain(c, r)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	if q.admin.output == "json" {
		json := json.NewEncoder(&out)
		json.SetEscapeHTML(false)
		err = json.Encode(found)
	} else {
		q.print(&out, r, found)
	}
	if err == nil {
		_, err = c.OutOrStdout().Write(out.Bytes())
	}
	if err != nil {
		return &failedError{err}
	}
	if !found.Allowed {
		return &exitError{exitFailed}
	}
	return nil
}

// remote reports whether a running gateway is asked, in place of a policy that is read here. What
// the command line says comes before settings from elsewhere.
func (q *checked) remote(f *pflag.FlagSet) (bool, error) {
	local := typed(f, "policy", "rules") != ""
	remote := typed(f, "admin-url") != ""
	switch {
	case remote && local:
		return false, errors.New("--admin-url: the gateway has a policy of its own: leave --policy and --rules out")
	case q.admin.url == "" || local, !remote && q.policy+q.rules != "":
		return false, nil
	case q.shadow:
		return false, errors.New("--shadow: a running gateway says itself whether it only watches")
	case q.times != 1:
		return false, errors.New("--times: a running gateway is asked about one request, and counts none")
	}
	return true, nil
}

// explain goes by the policy that is read here.
func (q *checked) explain(c *cobra.Command, r *http.Request) (*control.Explanation, error) {
	p, err := q.load(c)
	if err != nil {
		return nil, err
	}
	engine := policy.NewEngine(memory.New(), p)
	if q.shadow {
		engine.ShadowAll()
	}
	asked := q.decode(r)
	asked.Ends = true // but those before it are still under way
	for range q.times - 1 {
		engine.Decide(context.Background(), asked)
	}
	return control.Explain(context.Background(), engine, asked, new(answer.Encoder)), nil
}

// ask asks a running gateway.
func (q *checked) ask(c *cobra.Command, r *http.Request) (*control.Explanation, error) {
	in := control.CheckRequest{Method: r.Method, URL: r.URL.String(), Headers: map[string]string{}, Body: q.data, From: q.from}
	for name, values := range r.Header {
		if len(values) > 1 {
			return nil, fmt.Errorf("--header: %s is there twice, and a running gateway is asked about one", name)
		}
		in.Headers[name] = values[0]
	}
	found := new(control.Explanation)
	_, err := q.admin.call(c.Context(), http.MethodPost, "/v1/explain", nil, "", in, found)
	return found, err
}

// print puts an explanation into words. What a gateway has said may hold what others have sent.
func (q *checked) print(out io.Writer, r *http.Request, e *control.Explanation) {
	fmt.Fprintf(out, "%s %s from %s%s\n\n", r.Method, r.URL, plainText(e.Client), tierOf(e.Tier))
	for i := range e.Rules {
		q.printRule(out, &e.Rules[i])
	}
	printDecision(out, e)
	printResponse(out, e, q.whole)
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
	stack, err := q.stack(c)
	if err != nil {
		return nil, err
	}
	return stack.Policy(), nil
}

// stack reads the file, the database, or both.
func (q *checked) stack(c *cobra.Command) (*source.Stack, error) {
	return readStack(c, origin(c.Flags(), "policy"), q.policy, q.rules)
}

// readStack reads a file that is named at a place, or the policy that is built in, the database of --rules, or
// both.
func readStack(c *cobra.Command, place, file, rules string) (*source.Stack, error) {
	stack := &source.Stack{Swap: func(*policy.Policy) {}}
	if file != "" {
		var err error
		if file == examplePolicy {
			_, err = policyfile.ParseTo("examples/api.yaml", examples.API, nil, stack.File)
		} else {
			err = readTo(file, c.InOrStdin(), stack.File)
		}
		if err == nil {
			err = stack.UseFile()
		}
		if err != nil {
			return nil, &failedError{unreadable(place, err)}
		}
	}
	if rules == "" {
		return stack, nil
	}
	db, err := source.Open(rules, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", origin(c.Flags(), "rules"), err)
	}
	defer func() { _ = db.Close() }()
	stack.Name = db.String()
	contents, err := db.Read(c.Context())
	if err == nil {
		err = stack.Contents(contents)
	}
	if err != nil {
		return nil, &failedError{err}
	}
	return stack, nil
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
	if strings.HasPrefix(target, "//") { // NewRequest would read a host
		return nil, fmt.Errorf("%q: behind two slashes stands a host: to ask for this path, write http://host%s", target, target)
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
func tierOf(t *control.TierExplanation) string {
	switch {
	case t == nil:
		return ""
	case t.Name == "":
		return ", no tier"
	}
	from := t.From
	if t.From == "subjects" {
		from += inSource(t.Source) + t.Terms
	}
	return plainText(fmt.Sprintf(", tier %s from %s", t.Name, from))
}

func (q *checked) printRule(out io.Writer, rule *control.RuleExplanation) {
	mark := "-"
	if rule.Applies {
		mark = "*"
	}
	line := func(what, format string, args ...any) {
		fmt.Fprintf(out, "  %-16s %-6s %s\n", "", what, plainText(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintf(out, "%s %-16s %s%s\n", mark, plainText(rule.Rule), plainText(rule.Why), inSource(rule.Source))
	if len(rule.Limits) == 0 {
		return
	}
	line("key", "%s", rule.Key)
	for i := range rule.Limits {
		l := &rule.Limits[i]
		from := l.From + inSource(l.Source) + rule.OverrideTerms()
		if inFlight(l) {
			line("limit", "%s, from the %s", l.Limit, from)
		} else {
			line("limit", "%s, %s, from the %s", l.Limit, l.Algorithm, from)
		}
		line("says", "%s", verdict(l, rule.Enforced))
		switch {
		case !q.whole:
		case inFlight(l):
			line("after", "%d of %d places free, as long as it is under way", l.After.Remaining, l.Capacity)
		default:
			line("after", "%d of %d left, full again in %v", l.After.Remaining, l.Capacity, short(l.After.FullIn.Duration()))
		}
	}
	if rule.Share != "" {
		line("share", "%s", rule.Share)
	}
	if rule.Then != "" {
		line("then", "%s", rule.Then)
	}
	if how, ok := inConsistency[rule.Consistency]; ok {
		line("shared", "%s", how)
	}
	onError, _ := sluice.ParseOnError(rule.OnError)
	line("outage", "%s", inOutage(policy.Outage{OnError: onError, Why: rule.OnErrorWhy}))
}

// inSource says where a rule or an override is from, if more than one place can have it.
func inSource(source string) string {
	if source == "" {
		return ""
	}
	return " (" + source + ")"
}

// inFlight reports whether a limit is of requests under way.
func inFlight(l *control.LimitExplanation) bool { return l.Algorithm == "in_flight" }

// verdict puts what a limit says into words.
func verdict(l *control.LimitExplanation, enforced string) string {
	s := fmt.Sprintf("fits: it costs %d of %d", l.Cost, l.Before.Remaining)
	wait := l.RetryAfter.Duration()
	switch {
	case !l.Allowed && wait == sluice.Never:
		s = fmt.Sprintf("refuses: a cost of %d can never fit", l.Cost)
	case l.Locked:
		s = fmt.Sprintf("refuses: locked out for exceeding it, for another %v", short(wait))
	case inFlight(l) && l.Allowed:
		s = fmt.Sprintf("fits: %d of %d places are free", l.Before.Remaining, l.Capacity)
	case inFlight(l):
		s = fmt.Sprintf("refuses: all %d places are taken", l.Capacity)
	case !l.Allowed:
		s = fmt.Sprintf("refuses: it costs %d of %d, and fits in %v", l.Cost, l.Before.Remaining, short(wait))
	case l.Delay > 0:
		s += fmt.Sprintf(", and waits %v for its turn", short(l.Delay.Duration()))
	}
	switch {
	case l.Shadow && enforced != "":
		s += " (only watched: enforced for " + enforced + ", and not for this subject)"
	case l.Shadow:
		s += " (only watched: a shadow never refuses)"
	}
	return s
}

func printDecision(out io.Writer, e *control.Explanation) {
	switch {
	case e.Exempt:
		fmt.Fprintln(out, "\npasses: exempt, nothing is counted")
	case e.Blocked != "":
		fmt.Fprintf(out, "\nrefused: rule %q blocks the request\n", e.Blocked)
	case e.Missing != "":
		lacks := "it lacks " + e.Missing
		if what := (&policy.Decision{Missing: e.Missing}).Ambiguous(); what != "" {
			lacks = "its " + what + " can be read in more than one way"
		}
		fmt.Fprintf(out, "\nrefused: %s\n", plainText(lacks))
	case e.Allowed && e.Delay > 0:
		fmt.Fprintf(out, "\npasses after %v\n", short(e.Delay.Duration()))
	case e.Allowed:
		fmt.Fprintln(out, "\npasses")
	case e.RetryAfter < 0:
		fmt.Fprintln(out, "\nrefused, always")
	default:
		fmt.Fprintf(out, "\nrefused: try again in %v\n", short(e.RetryAfter.Duration()))
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
