package adminapi_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// roles returns a token for each role, which is the name of the role, and an expired token.
func roles() ([]source.TokenRow, error) {
	all := []source.TokenRow{{Name: "late", Hash: source.HashToken("expired"), Role: source.Admin, Until: time.Now().Add(-time.Second).Format(time.RFC3339)}}
	for _, r := range []source.Role{source.Viewer, source.Operator, source.Admin} {
		all = append(all, source.TokenRow{Name: "the " + r.String(), Hash: source.HashToken(r.String()), Role: r, Until: time.Now().Add(time.Hour).Format(time.RFC3339)})
	}
	return all, nil
}

// Every operation of the document is refused without a token, and with a wrong token, an expired token, or a token of a
// lower role. It is not refused with a token of the required role.
func TestAccess(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens = roles })
	for _, name := range document.Operations() {
		method, path, _ := strings.Cut(name, " ")
		path = strings.ReplaceAll(path, "{id}", "some-id")
		needs, ok := source.ParseRole(fmt.Sprint(operation(name).Extensions["x-role"]))
		if !ok {
			t.Errorf("%s has no x-role in the document", name)
		}
		try := func(what, authorization string, refused int) {
			t.Helper()
			var fields []string
			if authorization != "" {
				fields = []string{"Authorization: " + authorization}
			}
			a := s.Do(method, path, "", fields...)
			if refused != 0 && a.Status != refused || refused == 0 && (a.Status == 401 || a.Status == 403) {
				t.Errorf("%s with %s: %d, want %d", name, what, a.Status, refused)
			}
			if a.Status == 401 && a.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: a 401 without WWW-Authenticate", name)
			}
		}
		try("no token", "", 401)
		try("an empty token", "Bearer ", 401)
		try("a wrong token", "Bearer admin2", 401)
		try("a hash", "Bearer "+source.HashToken("admin").String(), 401)
		try("an expired token", "Bearer expired", 401)
		try("another scheme", "Basic admin", 401)
		for _, r := range []source.Role{source.Viewer, source.Operator, source.Admin} {
			refused := 0
			if !r.May(needs) {
				refused = 403
			}
			try("the token of the "+r.String(), "Bearer "+r.String(), refused)
			try("the token of the "+r.String()+", in lower case", "bearer "+r.String(), refused)
		}
	}
	if strings.Contains(s.log.String(), "admin2") {
		t.Errorf("a token is in the log: %s", s.log)
	}
}

// Two tokens in one request count as no token.
func TestTwoTokens(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens = roles })
	r, err := http.NewRequest("GET", s.URL+"/v1/policy", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = []string{"Bearer admin", "Bearer viewer"}
	s.Send(r, "").Want(401)
}

// If no tokens exist, every program on this machine may call the API. If the tokens cannot be read, no program may.
func TestLocal(t *testing.T) {
	for name, test := range map[string]struct {
		tokens func() ([]source.TokenRow, error)
		local  bool
		from   string
		status int
	}{
		"here":                   {none, true, "127.0.0.1:5", 200},
		"here by IPv6":           {none, true, "[::1]:5", 200},
		"from elsewhere":         {none, true, "192.0.2.1:5", 401},
		"from a strange address": {none, true, "@", 401},
		"an address for all":     {none, false, "127.0.0.1:5", 401},
		"there are tokens":       {roles, true, "127.0.0.1:5", 401},
		"nobody knows":           {unknown, true, "127.0.0.1:5", 503},
	} {
		r := localRequest("GET", "/v1/openapi.json")
		r.RemoteAddr = test.from
		s := start(t, func(c *setup) { c.Tokens, c.Local = test.tokens, test.local })
		w := httptest.NewRecorder()
		s.config.api().ServeHTTP(w, r)
		if w.Code != test.status {
			t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, test.status)
		}
		// A wrong token is refused in every case.
		r.Header.Set("Authorization", "Bearer wrong")
		w = httptest.NewRecorder()
		s.config.api().ServeHTTP(w, r)
		if w.Code != 401 && w.Code != 503 {
			t.Errorf("%s, with a wrong token: %d %s", name, w.Code, w.Body)
		}
	}
}

func none() ([]source.TokenRow, error)    { return nil, nil }
func unknown() ([]source.TokenRow, error) { return nil, errors.New("unavailable") }

// A client with a verified certificate has the role named by an organizational unit of the certificate.
func TestCertificates(t *testing.T) {
	for units, want := range map[string]int{
		"sluice-viewer": 403, "sluice-operator": 403, "sluice-admin": 404,
		"admin": 401, "sluice-": 401, "sluice-root": 401, "": 401, "Sluice-admin": 401,
		"sluice-viewer,sluice-admin": 404, "sluice-operator,engineering": 403,
	} {
		s := start(t, func(c *setup) { c.Tokens, c.Local = none, false })
		certificate := &x509.Certificate{Subject: pkix.Name{CommonName: "ci", OrganizationalUnit: strings.Split(units, ",")}}
		r := localRequest("DELETE", "/v1/rules/nowhere")
		r.Header.Set("If-Match", "*")
		for _, verified := range []bool{true, false} {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}
			status := 401
			if verified {
				r.TLS.VerifiedChains, status = [][]*x509.Certificate{{certificate}}, want
			}
			if status == 404 {
				status = 409 // there is no database
			}
			w := httptest.NewRecorder()
			s.config.api().ServeHTTP(w, r)
			if w.Code != status {
				t.Errorf("%q, verified %v: %d %s, want %d", units, verified, w.Code, w.Body, status)
			}
		}
	}
}

// A body that is too large is refused before it is read if its length is known, and otherwise as soon as the limit is
// exceeded.
func TestLargeBodies(t *testing.T) {
	s := start(t, nil)
	large := strings.Repeat("x", 10<<20)
	for _, name := range document.Operations() {
		method, path, _ := strings.Cut(name, " ")
		if method == "GET" {
			continue
		}
		path = strings.ReplaceAll(path, "{id}", "some-id")
		for _, chunked := range []bool{false, true} {
			// net/http cannot determine the length of a MultiReader.
			r, err := http.NewRequest(method, s.URL+path, io.MultiReader(strings.NewReader(`{"name": "`+large+`"}`)))
			if err != nil {
				t.Fatal(err)
			}
			if !chunked {
				r.ContentLength = int64(len(large) + 12)
			}
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("If-Match", "*")
			response, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				continue // the connection was closed while the body was being sent
			}
			_ = response.Body.Close()
			if response.StatusCode != 413 && !(chunked && method == "DELETE") {
				t.Errorf("%s, chunked %v: %d", name, chunked, response.StatusCode)
			}
		}
	}
	// If the Content-Length is too large, the server does not wait for the body.
	r := localRequest("POST", "/v1/check")
	r.ContentLength, r.Body = 10<<20, io.NopCloser(failing{t})
	w := httptest.NewRecorder()
	s.config.api().ServeHTTP(w, r)
	if w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// failing is a body that must not be read.
type failing struct{ t *testing.T }

func (f failing) Read([]byte) (int, error) {
	f.t.Error("the body was read")
	return 0, io.EOF
}

// The body of an unauthorized caller is not read.
func TestStrangersSendNoBody(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens = roles })
	r := localRequest("POST", "/v1/check")
	r.ContentLength, r.Body = 100, io.NopCloser(failing{t})
	w := httptest.NewRecorder()
	s.config.api().ServeHTTP(w, r)
	if w.Code != 401 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Refused callers cause at most one log line a second, so they cannot fill the log.
func TestRefusedCallersAreLoggedOnceASecond(t *testing.T) {
	s := start(t, func(c *setup) { c.Tokens = roles })
	began := time.Now()
	for range 50 {
		s.Do("GET", "/v1/policy", "").Want(401)
	}
	lines := bytes.Count(s.log.Bytes(), []byte("denied access"))
	if most := int(time.Since(began)/time.Second) + 2; lines < 1 || lines > most {
		t.Errorf("%d lines, want 1 to %d: %s", lines, most, s.log)
	}
}

// A body that does not arrive does not block the server.
func TestSlowBodies(t *testing.T) {
	t.Cleanup(adminapi.SetBodyTimeout(50 * time.Millisecond))
	s := start(t, nil)
	body, end := io.Pipe() // the body never arrives
	t.Cleanup(func() { _ = end.Close() })
	r, err := http.NewRequest("POST", s.URL+"/v1/check", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	s.Send(r, "").Want(408)
}
