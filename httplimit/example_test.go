package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

var api = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "hello") })

// show prints the responses to n requests.
func show(h http.Handler, n int) {
	for range n {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Header().Get("RateLimit-Policy"), "retry:", w.Header().Get("Retry-After") != "")
	}
}

// Each client address has a limit.
func ExampleLimit() {
	limit, err := sluice.ParseLimit("2/hour")
	if err != nil {
		log.Fatal(err)
	}
	limiter, err := sluice.NewLimiter(memory.New(), "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	show(httplimit.Limit(limiter, httplimit.ClientIP{}.Key)(api), 3)
	// Output:
	// 200 "api";q=2;w=3600 retry: false
	// 200 "api";q=2;w=3600 retry: false
	// 429 "api";q=2;w=3600 retry: true
}

// A policy has several limits. In a program, the policy comes from policyfile.Load("api.yaml").
func ExamplePolicy() {
	rules, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules:
  - {name: per-address, key: [client_ip], limit: 1/hour}
  - {name: everybody, limit: 5000/day}
`))
	if err != nil {
		log.Fatal(err)
	}
	show(httplimit.Policy(policy.NewEngine(memory.New(), rules))(api), 2)
	// Output:
	// 200 "per-address";q=1;w=3600, "everybody";q=5000;w=86400 retry: false
	// 429 "per-address";q=1;w=3600, "everybody";q=5000;w=86400 retry: true
}

// The handler knows the cost of a request only when it is done.
func ExampleSettle() {
	rules, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules:
  - {name: tokens, limit: 1000/day, cost: {response_header: X-Cost, estimate: 10, max: 500}}
`))
	if err != nil {
		log.Fatal(err)
	}
	engine := policy.NewEngine(memory.New(), rules)
	h := httplimit.Policy(engine)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "forty-two words")
		httplimit.Settle(r.Context(), policy.Outcome{Cost: 42})
	}))
	for range 3 {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Header().Get("X-RateLimit-Remaining"))
	}
	// Output:
	// 990
	// 948
	// 906
}

// The server is behind two proxies.
func ExampleClientIP() {
	client := httplimit.ClientIP{Trusted: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:51234"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.9, 10.0.0.2") // the first is forged
	fmt.Println(client.Key(r))
	// Output: 203.0.113.9
}

// Config has settings for the middleware.
func ExampleConfig() {
	limiter, err := sluice.NewLimiter(memory.New(), "api", sluice.Limit{Count: 1, Period: 1e9})
	if err != nil {
		log.Fatal(err)
	}
	config := httplimit.Config{Name: "per-user", XFields: answer.NoXFields}
	byUser := func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user }
	show(config.Limit(limiter, byUser)(api), 1)
	// Output: 200 "per-user";q=1;w=1 retry: false
}
