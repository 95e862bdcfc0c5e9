package checkapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/apitest"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// api is a handler. Its method call checks every answer against the OpenAPI document.
type api struct {
	http.Handler
	engine *policy.Engine
	store  *store
}

// store counts its calls. A test can make its Take fail.
type store struct {
	*memory.Store
	unavailable bool
	calls       atomic.Int64
}

func (s *store) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.calls.Add(1)
	if s.unavailable {
		return errors.New("unavailable")
	}
	return s.Store.Take(ctx, charges, receipts)
}

func (s *store) TakeEach(ctx context.Context, calls []sluice.TakeCall) {
	s.calls.Add(1)
	for i := range calls {
		calls[i].Err = s.Store.Take(ctx, calls[i].Charges, calls[i].Receipts)
	}
}

// open returns the API with a policy.
func open(t testing.TB, rules string, change ...func(*door.Config)) *api {
	t.Helper()
	a := &api{store: &store{Store: memory.New()}}
	a.engine = policy.NewEngine(a.store, policytest.Parse(t, rules))
	config := door.Config{Engine: a.engine, Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&config)
	}
	a.Handler = checkapi.Handler(config)
	return a
}

var document = func() *apitest.Document {
	r := httptest.NewRecorder()
	checkapi.Handler(door.Config{}).ServeHTTP(r, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	doc, err := apitest.Load(r.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return doc
}()

// call sends JSON with header fields "Name: value".
func (a *api) call(t *testing.T, method, path, body string, fields ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ":")
		r.Header.Set(name, strings.TrimSpace(value))
	}
	w := httptest.NewRecorder()
	a.ServeHTTP(w, r)
	if err := document.Check(r, body, w.Code, w.Header(), w.Body.Bytes()); err != nil {
		t.Errorf("%v\n%s", err, w.Body)
	}
	var one struct{ Headers map[string]string }
	_ = json.Unmarshal(w.Body.Bytes(), &one)
	for name, value := range one.Headers { // the response to a single check has them as its own fields, too
		if own, known := w.Header()[name]; (known || strings.HasPrefix(name, "X-Ratelimit")) && own[0] != value && name != "Content-Type" {
			t.Errorf("%s is %q in the response, and %q in the answer", name, own, value)
		}
	}
	return w
}

func TestCalls(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/calls.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				tokens := c.Options("options")
				a := open(t, c.Setup, func(c *door.Config) {
					if tokens != nil {
						c.Authorize = testkit.Authorize("secret")
					}
				})
				var last *httptest.ResponseRecorder
				places := testkit.Places()
				c.Play(t, func(step string) string {
					verb, rest, _ := strings.Cut(places.In(step), " ")
					switch verb {
					case "wait":
						d, err := time.ParseDuration(rest)
						if err != nil {
							t.Fatal(err)
						}
						time.Sleep(d)
					case "outage":
						a.store.unavailable = true
					case "swap":
						a.engine.Swap(policytest.Parse(t, rest))
					case "field":
						return last.Header().Get(rest)
					default:
						last = a.step(t, verb, rest)
						places.Note(last.Body.String())
						return fmt.Sprintf("%d %s", last.Code, last.Body)
					}
					return ""
				})
			})
		})
	}
}

// step sends a step such as "check {…}", or "GET /v1/check" and a body. Lines of the form "Name: value" are header
// fields.
func (a *api) step(t *testing.T, verb, rest string) *httptest.ResponseRecorder {
	t.Helper()
	method, path := "POST", "/v1/"+verb
	if verb == "GET" || verb == "POST" {
		method = verb
		path, rest, _ = strings.Cut(rest, "\n")
	}
	var body, fields []string
	for line := range strings.SplitSeq(rest, "\n") {
		if field.MatchString(line) {
			fields = append(fields, line)
		} else {
			body = append(body, line)
		}
	}
	return a.call(t, method, path, strings.Join(body, "\n"), fields...)
}

var field = regexp.MustCompile(`^[A-Z][A-Za-z-]*: `)

// A mistake is reported with a pointer to its position, and a call with a mistake charges nothing.
func TestFaults(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/faults.txt") {
		a := open(t, c.Setup)
		c.Play(t, func(step string) string {
			verb, body, _ := strings.Cut(step, " ")
			pointer, detail := a.fault(t, verb, body)
			if verb != "settle" {
				const before = `{"checks": [{"rule": "per-key", "key": {"api_key": "kept"}}, {"request": {"path": "/"}}, `
				second, _ := a.fault(t, verb, before+body+"]}")
				if json.Valid([]byte(body)) && second != "/checks/2"+pointer {
					t.Errorf("in a list, %s is at %s", body, second)
				}
			}
			return pointer + ": " + detail
		})
		pointer, detail := a.fault(t, "check", "{\"rule\": \"per-key\", \"key\": {\"api_key\": \"\xff\"}}")
		if pointer != "/key/api_key" || !strings.Contains(detail, "not UTF-8") {
			t.Errorf("invalid UTF-8: %s: %s", pointer, detail)
		}
		const kept = `{"rule": "per-key", "key": {"api_key": "kept"}}`
		if w := a.call(t, "POST", "/v1/peek", kept); !strings.Contains(w.Body.String(), `"remaining":20`) {
			t.Errorf("lists with a mistake have charged: %s", w.Body)
		}
	}
}

// fault sends an invalid body and returns the pointer and the detail of the error.
func (a *api) fault(t *testing.T, verb, body string) (pointer, detail string) {
	t.Helper()
	w := a.call(t, "POST", "/v1/"+verb, body)
	var problem struct {
		Errors []struct{ Pointer, Detail string }
	}
	if err := json.Unmarshal(w.Body.Bytes(), &problem); err != nil || w.Code != http.StatusBadRequest || len(problem.Errors) != 1 {
		t.Fatalf("%s %.300s: %d %s", verb, body, w.Code, w.Body)
	}
	return problem.Errors[0].Pointer, problem.Errors[0].Detail
}

// A thousand checks cause one call of the store, and so do a thousand refunds. A longer list is refused.
func TestBatchIsOneCall(t *testing.T) {
	a := open(t, "rules: [{name: per-address, key: [client_ip], limit: 2/day}]")
	list := func(n int) string {
		checks := make([]string, n)
		for i := range checks {
			checks[i] = fmt.Sprintf(`{"rule": "per-address", "key": {"client_ip": "192.0.%d.%d"}}`, i>>8, i&255)
		}
		return `{"checks": [` + strings.Join(checks, ",") + `]}`
	}
	for i, c := range []struct{ path, text string }{
		{"/v1/peek", `"remaining":2`}, {"/v1/check", `"remaining":1`}, {"/v1/check", `"remaining":0`}, {"/v1/check", `"allowed":false,"status":429`}, {"/v1/refund", `"remaining":1`},
	} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, newRequest(c.path, strings.NewReader(list(1000))))
		if n := strings.Count(w.Body.String(), c.text); n != 1000 || a.store.calls.Load() != int64(i)+1 {
			t.Errorf("%s: the answer contains %s %d times, after %d calls of the store", c.path, c.text, n, a.store.calls.Load())
		}
	}
	if pointer, detail := a.fault(t, "check", list(1001)); pointer != "/checks/1000" || !strings.Contains(detail, "at most 1000") {
		t.Errorf("a list of 1001: %s: %s", pointer, detail)
	}
}

// The API and the document have the same operations.
func TestOpenAPIHasAllRoutes(t *testing.T) {
	answered := checkapi.Routes()
	slices.Sort(answered)
	if written := document.Operations(); !slices.Equal(answered, written) {
		t.Errorf("the API has\n%s\nthe document has\n%s", strings.Join(answered, "\n"), strings.Join(written, "\n"))
	}
}

// The schemas of requests have the members that the decoder reads. The schemas of answers set additionalProperties to
// false, so every test checks the members of its answers.
func TestOpenAPIHasAllMembers(t *testing.T) {
	for schema, names := range checkapi.Members() {
		want := slices.Sorted(slices.Values(names))
		if have := slices.Sorted(maps.Keys(document.Components.Schemas[schema].Value.Properties)); !slices.Equal(want, have) {
			t.Errorf("%s: the decoder reads the members %q, and the schema has %q", schema, want, have)
		}
	}
}
