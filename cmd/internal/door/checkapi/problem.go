package checkapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
)

// problem is an error answer in the form of RFC 9457.
type problem struct {
	Type   string  `json:"type"`
	Title  string  `json:"title"`
	Status int     `json:"status"`
	Detail string  `json:"detail"`
	Errors []wrong `json:"errors,omitempty"`

	header http.Header
}

// wrong is a mistake in a member of the body, given by its JSON pointer (RFC 6901), or in a parameter of the query.
type wrong struct {
	Pointer   *string `json:"pointer,omitempty"`
	Parameter string  `json:"parameter,omitempty"`
	Detail    string  `json:"detail"`
}

func problemf(status int, format string, args ...any) *problem {
	return &problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: fmt.Sprintf(format, args...), header: http.Header{}}
}

// set adds a field to the answer.
func (p *problem) set(name, value string) *problem {
	p.header.Set(name, value)
	return p
}

func unavailable(detail string) *problem {
	return problemf(http.StatusServiceUnavailable, "%s", detail).set("Retry-After", "1")
}

func notAllowed(method, allowed string) *problem {
	return problemf(http.StatusMethodNotAllowed, "%s is not the method of this path: use %s", method, allowed).set("Allow", allowed)
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

// within adds the name of a member to the pointer of the problem.
func (p *problem) within(name string) {
	if len(p.Errors) > 0 {
		*p.Errors[0].Pointer = "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name) + *p.Errors[0].Pointer
	}
}

func (p *problem) write(w http.ResponseWriter) {
	h := w.Header()
	maps.Copy(h, p.header)
	h.Set("Content-Type", "application/problem+json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(p) // fails only if the client has left
}
