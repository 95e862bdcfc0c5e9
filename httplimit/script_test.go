package httplimit

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Responses are those in testdata/answers.txt.
func TestAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/answers.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				network := testkit.NewPipes()
				handler, engine := scripted(t, &c)
				server := &http.Server{Handler: handler, DisableGeneralOptionsHandler: true}
				go func() { _ = server.Serve(network) }()
				c.Play(t, func(step string) string {
					if rules, found := strings.CutPrefix(step, "swap\n"); found {
						engine.Swap(policytest.Parse(t, rules))
						return ""
					}
					return roundTrip(t, network, step)
				})
				_ = server.Close()
			})
		})
	}
}

// scripted returns a handler behind the limit or the policy of a case, and the engine of the policy.
func scripted(t *testing.T, c *testkit.Case) (http.Handler, *policy.Engine) {
	t.Helper()
	store := faultstore.New(memory.New())
	handler := things
	config := Config{}
	bounded, keep := false, false
	for _, word := range c.Options("config") {
		switch name, value, _ := strings.Cut(word, "="); {
		case name == "draft7":
			config.Dialect = answer.Draft7
		case name == "draft3":
			config.Dialect = answer.Draft3
		case name == "nofields":
			config.Dialect = answer.NoRateLimit
		case name == "xdelta":
			config.XFields = answer.XDelta
		case name == "nox":
			config.XFields = answer.NoXFields
		case name == "name":
			config.Name = strings.NewReplacer("_", " ", `\n`, "\n").Replace(value)
		case name == "forwarded":
			config.ForwardedHeader = value
		case name == "quota":
			config.QuotaPath = value
		case name == "user":
			config.Attributes = func(r *http.Request, attributes map[string]string) {
				if len(attributes) > 0 {
					t.Errorf("the attributes are not empty: %v", attributes)
				}
				attributes["user"] = r.Header.Get("X-User")
			}
		case name == "echo":
			handler = echo
		case name == "plans":
			return config.LimitBy(plans(t))(handler), nil
		case name == "refuse":
			config.Refuse = func(w http.ResponseWriter, r *http.Request, d policy.Decision) {
				if obey(w, r); r.Header.Get("Do") == "" {
					fmt.Fprintf(w, "lacks %q, blocked by %q, %d results, error %v", d.Missing, d.Blocked, len(d.Results), d.Err)
				}
			}
		case name == "unavailable":
			store.Set(faultstore.Refused)
		case name == "orders":
			handler = obey
		case name == "keep":
			keep = true
		case name == "bounded":
			bounded = true
		default:
			t.Fatalf("unknown setting %q", word)
		}
	}
	var h http.Handler
	if keep {
		handler = Keep(handler).ServeHTTP
	}
	engine := policy.NewEngine(store, nil)
	if limit, single := strings.CutPrefix(c.Setup, "limit: "); single {
		h = config.Limit(policytest.Limiter(t, store, strings.TrimSpace(limit)), nil)(handler)
	} else {
		engine.Swap(policytest.Parse(t, c.Setup))
		h = config.Policy(engine)(handler)
	}
	if bounded {
		h = http.MaxBytesHandler(h, 1<<20)
	}
	return h, engine
}

// echo responds with the target of the request and the names of its fields.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	delete(r.Header, "Connection")
	names := slices.Sorted(maps.Keys(r.Header))
	fmt.Fprintf(w, "%s %s%s %s\n", r.Method, r.Host, r.URL.EscapedPath(), strings.Join(names, " "))
})

// roundTrip sends a request, to which it adds missing required fields, and returns the response.
func roundTrip(t *testing.T, network *testkit.Pipes, step string) string {
	t.Helper()
	head, body, _ := strings.Cut(step, "\n\n")
	line, fields, _ := strings.Cut(head, "\n")
	if !strings.Contains(fields, "Host:") {
		fields = "Host: a.test\n" + fields
	}
	if !strings.Contains(fields, "Connection:") {
		fields += "\nConnection: close"
	}
	if body != "" && !strings.Contains(fields, "Transfer-Encoding:") {
		fields += fmt.Sprintf("\nContent-Length: %d", len(body))
	}
	request := line + " HTTP/1.1\n" + strings.ReplaceAll(fields, "\n\n", "\n") + "\n\n" + body
	conn, err := network.Dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() { _, _ = io.WriteString(conn, strings.ReplaceAll(request, "\n", "\r\n")) }()
	method, _, _ := strings.Cut(line, " ")
	in := bufio.NewReader(conn)
	response, err := http.ReadResponse(in, &http.Request{Method: method})
	if err == nil && response.StatusCode == http.StatusEarlyHints {
		response, err = http.ReadResponse(in, &http.Request{Method: method})
	}
	if err != nil {
		t.Fatalf("%s: %v", step, err)
	}
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Errorf("%s: %v", step, err)
	}
	var b strings.Builder
	fmt.Fprintln(&b, response.StatusCode)
	for _, name := range slices.Sorted(maps.Keys(response.Header)) {
		value := strings.Join(response.Header[name], ", ")
		if name != "Date" && name != "Content-Length" && name != "Connection" && value != "text/plain; charset=utf-8" {
			fmt.Fprintf(&b, "%s: %s\n", name, value)
		}
	}
	return b.String() + strings.TrimSpace(string(text))
}
