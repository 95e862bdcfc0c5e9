// Command main is a login server that uses only Go's standard library.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
)

var took = func() *os.File {
	f, err := os.OpenFile(os.Getenv("LOG"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		log.Fatal(err)
	}
	return f
}()

// fields is a struct into which programs decode a JSON object.
type fields struct {
	UserName string `json:"user_name"`
}

func take(route string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		_ = r.ParseMultipartForm(1 << 20)
		say(w, r, map[string]any{
			"path router":        or(route, route != ""),
			"path URL.Path":      r.URL.Path,
			"path cleaned":       path.Clean(r.URL.Path),
			"path EscapedPath":   r.URL.EscapedPath(),
			"path RequestURI":    strings.SplitN(r.RequestURI, "?", 2)[0],
			"body FormValue":     first(r.Form),
			"body PostFormValue": first(r.PostForm),
			"body ParseQuery":    parsed(string(body)),
			"body Unmarshal":     unmarshal(body),
			"body Decoder":       decode(body),
			"body map":           inMap(body),
			"query Query":        first(r.URL.Query()),
			"cookie Cookie":      cookie(r),
			"header Header":      or(r.Header.Get("X-User-Name"), r.Header["X-User-Name"] != nil),
			"host Host":          r.Host,
		})
	}
}

func say(w http.ResponseWriter, r *http.Request, idioms map[string]any) {
	text, err := json.Marshal(map[string]any{"upstream": os.Getenv("NAME"), "trial": r.Header.Get("X-Trial"), "took": idioms})
	if err != nil {
		log.Fatal(err)
	}
	text = append(text, '\n')
	_, _ = took.Write(text)
	_, _ = w.Write(text)
}

// or returns the value, or nil if the parameter there is false.
func or(v string, there bool) any {
	if there {
		return v
	}
	return nil
}

func first(v url.Values) any { return or(v.Get("user_name"), v.Has("user_name")) }

func parsed(s string) any {
	v, _ := url.ParseQuery(s)
	return first(v)
}

func unmarshal(body []byte) any {
	var f fields
	err := json.Unmarshal(body, &f)
	return or(f.UserName, err == nil)
}

func decode(body []byte) any {
	var f fields
	err := json.NewDecoder(bytes.NewReader(body)).Decode(&f)
	return or(f.UserName, err == nil)
}

func inMap(body []byte) any {
	m := map[string]any{}
	_ = json.Unmarshal(body, &m)
	if m["user_name"] == nil {
		return nil
	}
	return fmt.Sprint(m["user_name"])
}

func cookie(r *http.Request) any {
	c, err := r.Cookie("user_name")
	if err != nil {
		return nil
	}
	return c.Value
}

func main() {
	mux := http.NewServeMux()
	for _, kind := range strings.Fields("ip body skip query cookie header host") {
		mux.Handle("/"+kind+"/login", take("/"+kind+"/login"))
	}
	mux.Handle("/", take(""))
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), mux))
}
