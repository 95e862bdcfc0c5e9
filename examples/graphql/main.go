// Command graphql charges each query by its cost: one unit for each field. The fields of a list's elements are
// multiplied by the maximum length of the list.
//
//	go run ./examples/graphql
//	curl -i -H 'X-API-Key: k-42' --json '{"query": "{ users(first: 20) { name } }"}' localhost:8080/graphql
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

func main() {
	limiter, err := sluice.NewLimiter(memory.New(), "graphql", sluice.Limit{Count: 1000, Period: time.Hour, Burst: 200})
	if err != nil {
		log.Fatal(err)
	}
	server := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, `{"data": {}}`) })
	log.Fatal(http.ListenAndServe("localhost:8080", graphQL(limiter, cost, server)))
}

// tokens matches the parts of a query that the function cost reads: the lengths of lists, the beginnings and ends of
// selections, and names. A name before a colon is an argument or an alias.
var tokens = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|#.*|\(|\)|\{|\}|\b(?:first|last|limit)\s*:\s*(\d+)|[A-Za-z_]\w*(\s*:)?`)

// cost estimates the cost of a query roughly. The GraphQL library of a server can compute it better.
func cost(query string) int64 {
	const most = 1 << 20
	total, times, next, arguments := int64(0), []int64{1}, int64(1), 0
	for _, m := range tokens.FindAllStringSubmatch(query, -1) {
		switch {
		case m[1] != "":
			n, _ := strconv.ParseInt(m[1], 10, 32) // on overflow, n is the largest 32-bit number; the server refuses such a query
			next = max(1, n)
		case m[0] == "(":
			arguments++
		case m[0] == ")":
			arguments--
		case arguments > 0 || m[2] != "" || m[0][0] == '"' || m[0][0] == '#':
		case m[0] == "{":
			times = append(times, min(most, times[len(times)-1]*next))
			next = 1
		case m[0] == "}":
			times = times[:max(1, len(times)-1)]
		case len(times) > 1: // a field, not the name of the query
			total = min(most, total+times[len(times)-1])
			next = 1
		}
	}
	return max(1, total)
}

// graphQL charges the cost of a query, up to 100 units.
func graphQL(limiter *sluice.Limiter, cost func(query string) int64, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Query string `json:"query"`
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err == nil {
			err = json.Unmarshal(body, &asked)
		}
		if err != nil {
			http.Error(w, "the body is not a GraphQL request: "+err.Error(), http.StatusBadRequest)
			return
		}
		d, err := limiter.Take(r.Context(), r.Header.Get("X-API-Key"), min(cost(asked.Query), 100))
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		if !d.Allowed {
			if seconds, ok := d.RetryAfterSeconds(); ok { // otherwise the cost never fits
				w.Header().Set("Retry-After", strconv.FormatInt(seconds, 10))
			}
			http.Error(w, "this query costs more than you have left", http.StatusTooManyRequests)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}
