package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// limiter returns a limiter with its own store.
func limiter(text string) *sluice.Limiter {
	limit, err := sluice.ParseLimit(text)
	if err != nil {
		log.Fatal(err)
	}
	l, err := sluice.NewLimiter(memory.New(), "api", limit)
	if err != nil {
		log.Fatal(err)
	}
	return l
}

// Each user has the limit of a plan. Staff has no limit, and a request without a user is answered with 400.
func ExampleLimitBy() {
	plans := map[string]*sluice.Limiter{"free": limiter("1/hour"), "pro": limiter("1000/hour"), "staff": nil}
	planOf := func(user string) string {
		return map[string]string{"alice": "free", "bob": "pro", "carol": "staff"}[user]
	}

	h := httplimit.LimitBy(func(r *http.Request) (httplimit.Choice, error) {
		user, _, ok := r.BasicAuth()
		if !ok {
			return httplimit.Choice{}, httplimit.MissingError("a user")
		}
		return httplimit.Choice{Limiter: plans[planOf(user)], Key: user}, nil
	})(api)

	for _, user := range []string{"alice", "alice", "bob", "carol", ""} {
		r := httptest.NewRequest("GET", "/", nil)
		if user != "" {
			r.SetBasicAuth(user, "secret")
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		fmt.Printf("%q %d %s.\n", user, w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// "alice" 200 "api";q=1;w=3600.
	// "alice" 429 "api";q=1;w=3600.
	// "bob" 200 "api";q=1000;w=3600.
	// "carol" 200 .
	// "" 400 .
}

// Denied requests are answered with the program's own page. The status and the fields are already set.
func ExampleRefusal() {
	limit := httplimit.Config{Refuse: func(w http.ResponseWriter, _ *http.Request, _ policy.Decision) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, "<p>Back in %s seconds.</p>", w.Header().Get("Retry-After"))
	}}.Limit(limiter("1/hour"), nil)
	for range 2 {
		w := httptest.NewRecorder()
		limit(api).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 hello
	//
	// 429 <p>Back in 3600 seconds.</p>
}

// The handler calls the limiter itself, because it knows the cost of a request only after some work. It answers the
// client as the middleware would.
func ExampleAnswerer() {
	rows := limiter("10/hour")
	answers := httplimit.Config{}.Answerer()
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const wanted = 6
		var d policy.Decision
		answer.Take(r.Context(), rows, "rows", "alice", wanted, &d)
		if answers.Answer(w, r, d) {
			fmt.Fprintln(w, wanted, "rows")
		}
	})
	show(h, 2)
	// Output:
	// 200 "rows";q=10;w=3600 retry: false
	// 429 "rows";q=10;w=3600 retry: true
}

// The handler reads the decision.
func ExampleDecisionFrom() {
	limit := httplimit.Config{KeepDecision: true}.Limit(limiter("10/hour"), nil)
	h := limit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		d, _ := httplimit.DecisionFrom(r.Context())
		fmt.Println(d.Results[0].Rule, d.Results[0].Remaining)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil))
	// Output: api 9
}
