package checkapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// problem is an answer that is an error, as RFC 9457 has it.
type problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Errors []wrong `json:"errors,omitempty"`

	allow     string // the method
	retry     int    // seconds
	challenge bool
	hangUp    bool
}

// wrong is what is wrong with a member of the body, by a JSON pointer (RFC 6901), or with a
// parameter of the query.
type wrong struct {
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Detail    string  `json:"detail"`
}

func problemf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...)}
}

func notAllowed(method, allowed string) *problem {
	p := problemf(http.StatusMethodNotAllowed, "%s is not the method of this path: use %s", method, allowed)
	p.allow = allowed
	return p
}

func badParameter(name, detail string) *problem {
	p := problemf(http.StatusBadRequest, "%s", detail)
	p.Errors = []wrong{{Parameter: name, Detail: detail}}
	return p
}

func badMember(pointer, format string, args ...any) *problem {
	p := problemf(http.StatusBadRequest, format, args...)
	p.Errors = []wrong{{Pointer: &pointer, Detail: p.Detail}}
	return p
}

// within says that the problem is in a member of that name.
func (p *problem) within(name string) {
	if len(p.Errors) > 0 {
		*p.Errors[0].Pointer = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name) + *p.Errors[0].Pointer
	}
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	if p.allow != "" {
		h.Set("Allow", p.allow)
	}
	if p.retry > 0 {
		h.Set("Retry-After", strconv.Itoa(p.retry))
	}
	if p.challenge {
		h.Set("WWW-Authenticate", `Bearer realm="sluice"`)
	}
	if p.hangUp {
		h.Set("Connection", "close")
	}
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // an error is the client's, who has left
}
