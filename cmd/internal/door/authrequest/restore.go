package authrequest

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"strings"

	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Fields that proxies add to the client's request.
const (
	tokenField   = "X-Sluice-Token"
	accelField   = "X-Accel-Location"
	idField      = "X-Request-Id"
	partialField = "X-Envoy-Auth-Partial-Body"
)

// maxID is the maximum length of a request ID in bytes.
const maxID = 200

// named matches the name of a named location of nginx. Any other text could be the path of a location that clients
// must not reach.
var named = regexp.MustCompile(`^@[A-Za-z0-9_.-]{1,60}$`)

// restore returns the client's request. An error means a mistake in the proxy's configuration. The parameter target
// is the path of the proxy's request after the name of the proxy's kind.
func (d *decider) restore(r *http.Request, target string) (*http.Request, error) {
	token := take(r.Header, tokenField)
	if d.authorize != nil {
		if err := d.authorize(r.RemoteAddr, token); err != nil {
			return nil, fmt.Errorf("%s: %w", tokenField, err)
		}
	}
	asked := new(http.Request)
	*asked = *r.WithContext(r.Context())
	if err := cmp.Or(d.aim(asked, target), d.from(asked), d.identify(asked)); err != nil {
		return nil, err
	}
	if d.kind.redirects && !named.MatchString(r.Header.Get(accelField)) {
		return nil, errors.New(accelField + " is not the name of a location, such as @backend")
	}
	d.restoreBody(asked)
	return asked, nil
}

// aim sets the method, the target and the host of the client's request.
func (d *decider) aim(r *http.Request, target string) (err error) {
	for _, f := range []struct {
		name string
		to   *string
	}{{d.kind.method, &r.Method}, {d.kind.uri, &target}, {d.kind.host, &r.Host}} {
		if f.name == "" {
			continue
		}
		if *f.to, err = one(r.Header, f.name); err != nil {
			return err
		}
		if f.name != "X-Forwarded-Host" { // X-Forwarded-Host is also a field of the client's request
			delete(r.Header, f.name)
		}
	}
	r.RequestURI = target
	u, err := url.ParseRequestURI(escaped(target))
	if err != nil {
		u = &url.URL{Opaque: "?"} // this target is refused as malformed
	}
	r.URL = u
	return nil
}

// escaped escapes the bytes of a target's path that should be escaped. Otherwise, [url.URL] would rewrite the whole
// path and undo other escapes. But a server may distinguish an escaped character from the unescaped one.
func escaped(target string) string {
	path, query, asks := strings.Cut(target, "?")
	if !strings.ContainsFunc(path, unwritable) {
		return target
	}
	path = printable.Percent(path, func(c byte) bool { return unwritable(rune(c)) })
	if asks {
		path += "?" + query
	}
	return path
}

// unwritable reports whether a character should be escaped in a path. Control characters stay unescaped. They cause
// a denial later, because servers treat them in different ways.
func unwritable(r rune) bool { return r >= 0x80 || strings.ContainsRune("\"<>\\^`{|}", r) }

// from sets the address of the client.
func (d *decider) from(r *http.Request) error {
	value, err := one(r.Header, d.kind.client)
	if err != nil {
		return err
	}
	if d.kind.list {
		value = strings.TrimSpace(value[strings.LastIndexByte(value, ',')+1:])
	}
	if value == "unix:" { // what nginx sends for a Unix socket
		value = "127.0.0.1"
	}
	addr, err := netip.ParseAddr(value)
	if err != nil {
		return fmt.Errorf("%s is %.60q, not the address of the client", d.kind.client, value)
	}
	r.RemoteAddr = addr.WithZone("").String()
	return nil
}

// identify replaces the ID with a hash of the ID and of the request's method, host, target and client, because a
// client may be able to choose the ID. With the hash, a client that repeats an ID avoids a charge only for an
// identical request.
func (d *decider) identify(r *http.Request) error {
	if !d.id {
		return nil
	}
	id, err := one(r.Header, idField)
	if err != nil {
		return err
	}
	if len(id) > maxID {
		return fmt.Errorf("%s has %d bytes, more than the maximum of %d", idField, len(id), maxID)
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{d.kind.name, id, r.Method, r.Host, r.RequestURI, r.RemoteAddr}, "\x00")))
	r.Header.Set(idField, base64.RawURLEncoding.EncodeToString(sum[:16]))
	return nil
}

// restoreBody keeps the body if the proxy sends bodies. Reading a partial body fails.
func (d *decider) restoreBody(r *http.Request) {
	partial := take(r.Header, partialField) == "true"
	switch {
	case !d.body:
		r.Body, r.ContentLength = http.NoBody, 0
	case partial:
		r.Body, r.ContentLength = part{}, -1
	}
}

// part is the body of a request if the proxy sent only the beginning of the body.
type part struct{}

func (part) Read([]byte) (int, error) { return 0, policy.ErrBodyPart }
func (part) Close() error             { return nil }

// one returns the value of a field that the proxy must set.
func one(h http.Header, name string) (string, error) {
	switch values := h[name]; {
	case len(values) == 0 || len(values) == 1 && values[0] == "":
		return "", fmt.Errorf("%s is missing", name)
	case len(values) > 1:
		return "", fmt.Errorf("%s occurs %d times", name, len(values))
	default:
		return values[0], nil
	}
}

// take removes a field, and returns its value.
func take(h http.Header, name string) string {
	value := h.Get(name)
	delete(h, name)
	return value
}
