// Command middleware limits the requests to its own handlers by a policy.
package main

import (
	"fmt"
	"log"
	"net/http"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/users", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "alice, bob, carol")
	})
	rules, err := policyfile.Load("api.yaml")
	if err != nil {
		log.Fatal(err)
	}
	engine := policy.NewEngine(memory.New(), rules)
	log.Fatal(http.ListenAndServe("localhost:8080", httplimit.Policy(engine)(mux)))
}
