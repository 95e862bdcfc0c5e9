// Command service limits the requests to its own handlers by a policy file, and loads the file again when it
// changes. All instances share their counts in Redis. The response to a denied request has a text of the program's
// own.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile/follow"
	"github.com/sluicehq/sluice/stores"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/users", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "alice, bob, carol")
	})
	ctx := context.Background()
	store, err := stores.Open(ctx, "redis://localhost:6379", stores.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	file := &follow.File{Path: "api.yaml"}
	rules, err := file.Load()
	if err != nil {
		log.Fatal(err)
	}
	engine := policy.NewEngine(store, rules)
	go file.Watch(ctx, nil, engine.Swap)
	limit := httplimit.Config{
		Refuse: func(w http.ResponseWriter, r *http.Request, d policy.Decision) {
			fmt.Fprintf(w, "Slow down, and come back in %s seconds.\n", w.Header().Get("Retry-After"))
		},
	}.Policy(engine)
	log.Print(http.ListenAndServe("localhost:8080", limit(mux)))
}
