// Command login protects a login against guessing, by the policy in api.yaml:
//
//	go run ./examples/login
//	curl -i -d 'username=alice&password=guess' localhost:8080/login
package main

import (
	"crypto/subtle"
	_ "embed"
	"fmt"
	"log"
	"net/http"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

//go:embed api.yaml
var api []byte

func main() {
	h, err := handler(memory.New())
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.ListenAndServe("localhost:8080", h))
}

// handler is the API behind its limits. The response to a login decides whether the login counts.
func handler(store sluice.Store) (http.Handler, error) {
	rules, err := policyfile.Parse("api.yaml", api)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", login)
	return httplimit.Policy(policy.NewEngine(store, rules))(mux), nil
}

func login(w http.ResponseWriter, r *http.Request) {
	if subtle.ConstantTimeCompare([]byte(r.FormValue("password")), []byte("correct horse")) == 0 {
		http.Error(w, "wrong name or password", http.StatusUnauthorized)
		return
	}
	fmt.Fprintf(w, "hello, %s\n", r.FormValue("username"))
}
