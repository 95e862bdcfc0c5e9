// Package sample is a small API for a gateway without an upstream of its own (--upstream sample). It stores
// nothing.
//
// It is a model server, too, in the formats of OpenAI, Anthropic and Ollama, without keys. The same request always
// has the same answer:
//
//   - The text has as many words as the last message asks for ("Write 50 words"), or 20. It ends early at the most
//     output tokens that the request allows.
//   - A request with tools is answered with a call of the first one, unless its last message is a tool's result.
//   - Usage is a token of input for each four bytes of the body, and a token of output for each word.
//   - A word takes 5 ms.
//   - Any model name is accepted. With -fast in it a word takes no time, and with -slow 200 ms; with -cached half of
//     the input is read from a cache; with -fails the answer is status 500, or a stream that breaks off halfway.
//   - Responses are compressed if the client accepts gzip.
package sample

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Password is the one that every user of the sample API has.
const Password = "sluice"

type user struct {
	ID   int    `json:"id"`
	Name string `json:"name"`
}

var users = []user{{1, "alice"}, {2, "bob"}, {3, "carol"}}

// Handler returns the API:
//
//	GET  /health
//	GET  /api/users
//	GET  /api/search?q=…, /api/search/…
//	POST /auth/login, /auth/register, /auth/reset-password
//
// These POST routes read username and password from a JSON or form body. The routes of the model server are
//
//	GET  /v1/models
//	POST /v1/chat/completions, /v1/responses
//	POST /v1/messages
//	POST /api/chat
func Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /api/users", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, users)
	})
	mux.HandleFunc("GET /api/search", search)
	mux.HandleFunc("GET /api/search/{rest...}", search)
	mux.HandleFunc("POST /auth/login", login)
	mux.HandleFunc("POST /auth/register", accept(http.StatusCreated, "registered"))
	mux.HandleFunc("POST /auth/reset-password", accept(http.StatusAccepted, "mail sent"))
	mux.HandleFunc("GET /v1/models", models)
	mux.HandleFunc("POST /v1/chat/completions", serveModel(chat))
	mux.HandleFunc("POST /v1/responses", serveModel(responses))
	mux.HandleFunc("POST /v1/messages", serveModel(messages))
	mux.HandleFunc("POST /api/chat", serveModel(ollama))
	return mux
}

// search finds the users with the query, or the rest of the path, in their name.
func search(w http.ResponseWriter, r *http.Request) {
	q := r.PathValue("rest")
	if q == "" {
		q = r.URL.Query().Get("q")
	}
	found := []user{}
	for _, u := range users {
		if strings.Contains(u.Name, strings.ToLower(q)) {
			found = append(found, u)
		}
	}
	reply(w, http.StatusOK, found)
}

func login(w http.ResponseWriter, r *http.Request) {
	c, ok := readCredentials(w, r)
	switch {
	case !ok:
	case c.Password != Password:
		reply(w, http.StatusUnauthorized, map[string]string{"error": "wrong user name or password"})
	default:
		reply(w, http.StatusOK, map[string]string{"user": c.Username, "token": "sample"})
	}
}

func accept(status int, what string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if c, ok := readCredentials(w, r); ok {
			reply(w, status, map[string]string{"user": c.Username, "status": what})
		}
	}
}

type credentials struct {
	Username string `json:"username"`
	Password string `json:"password"`
}

const maxBody = 64 << 10

// readCredentials answers the request itself where the body makes no sense.
func readCredentials(w http.ResponseWriter, r *http.Request) (c credentials, ok bool) {
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	var err error
	if strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		err = json.NewDecoder(r.Body).Decode(&c)
	} else if err = r.ParseForm(); err == nil {
		c = credentials{r.PostForm.Get("username"), r.PostForm.Get("password")}
	}
	if err != nil || c.Username == "" {
		reply(w, http.StatusBadRequest, map[string]string{"error": "send username and password as a form or as JSON"})
		return c, false
	}
	return c, true
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// It fails only if the client has left.
	_ = json.NewEncoder(w).Encode(body)
}
