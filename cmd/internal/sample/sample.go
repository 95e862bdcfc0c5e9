// Package sample is a small API that serves as the upstream of a gateway with --upstream sample. It does not store
// anything.
//
// It is also a model server with the APIs of OpenAI, Anthropic and Ollama, without keys. The answer depends only on
// the request:
//
//   - The text has as many words as the last message asks for ("Write 50 words"), or 20. It is cut at the maximum of
//     output tokens in the request.
//   - The answer to a request with tools is a call of the first tool, unless the last message is the result of a tool.
//   - The usage is one input token for every four bytes of the body, and one output token for each word.
//   - A word takes 5 ms.
//   - Any name of a model is accepted. If it contains -fast, a word takes no time; with -slow, it takes 200 ms. With
//     -cached, half of the input is read from a cache. With -fails, the answer is the status 500, or a stream that
//     breaks off halfway.
//   - Responses are compressed if the client accepts gzip.
package sample

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Password is the password of every user of the sample API.
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

// search finds the users whose name contains the query or the rest of the path.
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

// readCredentials reads the credentials in the body. If the body is invalid, it answers the request and returns
// false.
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
	_ = json.NewEncoder(w).Encode(body) // fails only if the client has left
}
