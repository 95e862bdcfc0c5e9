package console_test

import (
	"encoding/json"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/console"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// consolePages is a browser without JavaScript that opens the dashboard of an instance.
type consolePages struct {
	*apitest.Instance
	*Browser
	ends []policy.Decision // decisions of requests in flight
}

// newConsole starts the dashboard of an instance with a database, a rule, and a token of each role. It signs in as the
// admin.
func newConsole(t *testing.T) *consolePages {
	t.Helper()
	i := apitest.NewInstance(t, apitest.SQLite(t))
	fleet := &telemetry.Fleet{Recorder: telemetry.Watch(i.Engine, telemetry.Config{Subjects: true}), Refusals: telemetry.KeepRefusals(i.Engine)}
	i.Over.Telemetry = fleet
	inForce := func() *policy.Document { doc, _ := i.Stack.Document(); return doc }
	i.Over.Recent = recent.NewFleet(recent.Watch(i.Engine, recent.LeastBytes), nil, inForce, slog.New(slog.DiscardHandler))
	i.Serve()
	i.Script(`
POST /v1/rules {"name": "own", "match": ["GET /own"], "key": ["client_ip"], "limit": "2/day", "shadow": true} => 201
token the viewer = viewer
token the operator = operator
token the admin = admin
as the admin
await GET /v1/policy => 200
`)
	return consoleOf(t, i)
}

// budgetFile is a policy with rules that take their cost from responses.
const budgetFile = `version: 1
prices: {"*": {input: 1, output: 10}}
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 300/day}
  - {name: tpm, key: [api_key], limit: 100000/day, algorithm: fixed_window, cost: {tokens: total, estimate: 500}}
  - {name: usd, limits: [50 USD/day, 0.10 USD/hour], algorithm: fixed_window, cost: {usd: prices, estimate: 20000}, shadow: true}
`

// budgetConsole starts the dashboard of an instance with the policy of budgetFile.
func budgetConsole(t *testing.T) *consolePages {
	t.Helper()
	i := apitest.NewInstance(t, apitest.SQLite(t))
	i.UseFile(budgetFile)
	i.Over.Telemetry = &telemetry.Fleet{Recorder: telemetry.Watch(i.Engine, telemetry.Config{Subjects: true})}
	i.Serve()
	i.Script("token the admin = admin\ntoken the viewer = viewer\nas the admin\n")
	return consoleOf(t, i)
}

// fileConsole starts the dashboard of an instance without a database.
func fileConsole(t *testing.T) *consolePages {
	t.Helper()
	i := &apitest.Instance{Player: apitest.Player{T: t}, Log: new(testkit.Log), Engine: policy.NewEngine(memory.New(), nil)}
	i.Stack = &source.Stack{Swap: i.Engine.Swap}
	i.UseFile(apitest.FilePolicy)
	i.Over = control.Config{Engine: i.Engine, Stack: i.Stack, Logger: slog.New(slog.DiscardHandler)}
	i.Serve()
	return consoleOf(t, i)
}

func consoleOf(t *testing.T, i *apitest.Instance) *consolePages {
	server := httptest.NewServer(console.Handler(console.Config{
		Control: i.API.Control, Access: i.API.Access, Logger: i.Over.Logger,
	}))
	t.Cleanup(server.Close)
	c := &consolePages{Instance: i, Browser: browse(&i.Player, server.URL)}
	for name, value := range map[string]string{
		"k1": "rule=per-key&key.api_key=k-1", "flight": "rule=flight&key.client_ip=192.0.2.9", "key300": strings.Repeat("k", 300),
		"secret": "sk_live_of_a_customer_4711",
	} {
		i.Vars[name] = value
	}
	c.addCommands()
	return c
}

// Each section of testdata/scripts is a test of the dashboard. The sections of file.txt run without a database.
func TestConsole(t *testing.T) {
	t.Parallel()
	for file, sections := range apitest.Sections(t, "testdata/scripts/*.txt") {
		for _, s := range sections {
			t.Run(file+"/"+s.Title, func(t *testing.T) {
				t.Parallel()
				start := newConsole
				switch file {
				case "file":
					start = fileConsole
				case "budgets":
					start = budgetConsole
				}
				start(t).Play(s)
			})
		}
	}
}

// addCommands adds the steps of testdata/scripts that cmd/internal/apitest does not have.
func (c *consolePages) addCommands() {
	passes := map[bool]string{true: "pass", false: "refuse"}
	hold := func(s apitest.Step, what string, allowed bool, want string) {
		if passes[allowed] != want {
			c.T.Errorf("%s: %s: %s, want %s", s.Where, what, passes[allowed], want)
		}
	}
	charged := func(s apitest.Step) {
		hold(s, s.Rest, c.Engine.Decide(c.T.Context(), apitest.Request(s.Rest)).Allowed, s.Verb)
	}
	for name, do := range map[string]func(apitest.Step){
		"pass": charged, "refuse": charged,
		"decides": func(s apitest.Step) {
			what, want, _ := strings.Cut(s.Rest, " = ")
			hold(s, what, c.Engine.Explain(c.T.Context(), requestOf(what)).Decision.Allowed, want)
		},
		"charge": func(s apitest.Step) { c.Engine.Decide(c.T.Context(), requestOf(s.Rest)) },
		"begin": func(s apitest.Step) {
			r := requestOf("GET " + s.Rest + " - 192.0.2.9")
			r.Ends = true
			c.ends = append(c.ends, c.Engine.Decide(c.T.Context(), r))
		},
		"end": func(apitest.Step) {
			c.Engine.Release(c.T.Context(), c.ends[0])
			c.ends = c.ends[1:]
		},
		"ask": func(s apitest.Step) {
			what, want, _ := strings.Cut(s.Rest, " = ")
			id, key, _ := strings.Cut(what, " ")
			r := apitest.Request(key)
			r.Path, r.Host, r.Door = "/v1/<b>things</b>", "api.example", "gateway"
			r.Header.Set("X-Request-Id", id)
			hold(s, what, c.Engine.Decide(c.T.Context(), r).Allowed, want)
		},
		"spend": func(s apitest.Step) {
			key, rest, _ := strings.Cut(s.Rest, " ")
			c.Engine.Settle(c.T.Context(), c.Engine.Decide(c.T.Context(), apitest.Request(key)), outcomeOf(rest))
		},
		"left":      c.leaves,
		"refused":   c.refuse,
		"paste":     c.paste,
		"together":  c.together,
		"elsewhere": c.elsewhere,
		"log": func(s apitest.Step) {
			log := c.Log.Take()
			for _, text := range append(s.More, s.Rest) {
				if !strings.Contains(log, text) {
					c.T.Errorf("%s: the log has no %s: %s", s.Where, text, log)
				}
			}
		},
	} {
		c.Commands[name] = do
	}
}

// requestOf parses a request "METHOD PATH KEY ADDRESS". The KEY "-" means no key.
func requestOf(text string) *policy.Request {
	f := strings.Fields(text)
	r := &policy.Request{Method: f[0], Path: f[1], Peer: netip.MustParseAddr(f[3]), Header: http.Header{}}
	if f[2] != "-" {
		r.Header.Set("X-Api-Key", f[2])
	}
	return r
}

// outcomeOf returns the outcome of a response that reports "INPUT OUTPUT" tokens. If text is empty, the response
// reports no tokens.
func outcomeOf(text string) policy.Outcome {
	o := policy.Outcome{Status: http.StatusOK}
	if in, out, found := strings.Cut(text, " "); found {
		input, _ := strconv.ParseInt(in, 10, 64)
		output, _ := strconv.ParseInt(out, 10, 64)
		o.Numbers = map[string]int64{"usage.prompt_tokens": input, "usage.completion_tokens": output}
	}
	return o
}

// leaves checks the remaining units of a key.
func (c *consolePages) leaves(s apitest.Step) {
	key, want, _ := strings.Cut(s.Rest, " ")
	results := c.Engine.Explain(c.T.Context(), apitest.Request(key)).Decision.Results
	if n := slices.IndexFunc(results, apitest.IsPerKey); n < 0 || strconv.FormatInt(results[n].Remaining, 10) != want {
		c.T.Errorf("%s: the results of %s are %+v, want %s remaining", s.Where, key, results, want)
	}
}

// refuse uses up the limits of keys. It sets $p1, $p2 and so on to the pseudonyms of the keys, and $q1, $q2 and so on
// to their query-escaped forms.
func (c *consolePages) refuse(s apitest.Step) {
	for n, key := range strings.Fields(s.Rest) {
		for range 4 {
			c.Engine.Decide(c.T.Context(), apitest.Request(key))
		}
		subject, err := c.Engine.Subject("per-key", map[string]string{"api_key": key})
		if err != nil {
			c.T.Fatal(err)
		}
		pseudonym := "#" + subject.Pseudonym()[:6]
		c.Vars[fmt.Sprint("p", n+1)], c.Vars[fmt.Sprint("q", n+1)] = pseudonym, url.QueryEscape(pseudonym)
	}
}

// paste changes the policy file as the last page advises.
func (c *consolePages) paste(s apitest.Step) {
	c.T.Helper()
	_, text, found := strings.Cut(c.Last.HTML, `policy file">`)
	if !found {
		c.T.Fatalf("%s: the page has nothing to paste: %s", s.Where, c.Last.Words())
	}
	text, _, _ = strings.Cut(text, "</pre>")
	text = html.UnescapeString(text)
	if s.Rest != "all" { // append to the overrides of the file
		text = apitest.FilePolicy + strings.TrimPrefix(text, "overrides:\n")
	}
	c.UseFile(text)
}

// together checks the number of entries that the operator's last transaction has in the audit log.
func (c *consolePages) together(s apitest.Step) {
	c.T.Helper()
	was := c.Token
	defer func() { c.Token = was }()
	c.Token = c.Secrets["the admin"]
	var page struct{ Items []source.Entry }
	if err := json.Unmarshal([]byte(c.Get("/v1/audit?limit=10")), &page); err != nil {
		c.T.Fatal(err)
	}
	n := 0
	for n < len(page.Items) && page.Items[n].At.Equal(page.Items[0].At) && page.Items[n].Actor == "the operator" {
		n++
	}
	if strconv.Itoa(n) != s.Rest {
		c.T.Errorf("%s: %d entries were made together, want %s", s.Where, n, s.Rest)
	}
}

// elsewhere waits until the whole policy of the other instance is, or is not, in shadow mode.
func (c *consolePages) elsewhere(s apitest.Step) {
	c.T.Helper()
	c.Eventually(s.Where, func() bool {
		return c.Other.Engine.Policy().WatchOnly() == (s.Rest == "shadow on")
	})
}
