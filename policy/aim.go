package policy

import (
	"net/http"
	"net/url"
	"strings"
)

// Aim sets Path and RawQuery from target, a path with its query or the "*" of OPTIONS, for a door that
// is told about a request instead of receiving it. A Host among the fields becomes the
// request's. If a server would have refused such a request, or read it otherwise than rules do, it
// returns a sentence that says what is wrong with its head; else "".
func (r *Request) Aim(target string) (fault string) {
	if named := r.Header["Host"]; named != nil {
		if r.Host == "" && len(named) == 1 {
			r.Host = named[0]
		} else if len(named) != 1 || !strings.EqualFold(named[0], r.Host) {
			return "The request has two hosts."
		}
		delete(r.Header, "Host")
	}
	switch {
	case r.Method != "" && !token(r.Method), r.Method == http.MethodConnect:
		return "The method is none that a request can have."
	case !PlainHost(r.Host):
		return "The Host must be a name or an address, and perhaps a port."
	case !fieldsHold(r.Header):
		return "The head has a field that none can have."
	case target == "*" && r.Method == http.MethodOptions:
		r.Path = target
		return ""
	}
	return r.split(target)
}

// split reads path and query as a server does.
func (r *Request) split(target string) (fault string) {
	path, query, _ := strings.Cut(target, "?")
	r.Path, r.RawQuery = path, query
	if path != "" && path[0] == '/' && only(path, &inPlainPath) && plainQuery(query) {
		return ""
	}
	u, err := url.ParseRequestURI(target)
	if err != nil || path == "" || path[0] != '/' || strings.ContainsAny(target, " #") {
		return `The path must begin with "/" and be escaped as in a request.`
	}
	r.Path, r.RawQuery = u.EscapedPath(), u.RawQuery
	return ""
}

// What most paths are made of, and stands for itself in them; and methods and names of fields.
var (
	inPlainPath = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.~")
	inToken     = characters("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789!#$%&'*+-.^_`|~")
)

// only reports whether a text has no other characters.
func only(s string, in *[256]bool) bool {
	for i := range len(s) {
		if !in[s[i]] {
			return false
		}
	}
	return true
}

// plainQuery reports whether a query is printable ASCII, which no server reads otherwise.
func plainQuery(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '#' {
			return false
		}
	}
	return true
}

func token(s string) bool { return s != "" && only(s, &inToken) }

// fieldsHold reports whether the fields can be in a head.
func fieldsHold(h http.Header) bool {
	for name, values := range h {
		if !token(name) {
			return false
		}
		for _, v := range values {
			for i := range len(v) {
				if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
					return false
				}
			}
		}
	}
	return true
}
