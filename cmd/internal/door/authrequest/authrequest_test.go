package authrequest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func askers(t testing.TB, names ...string) (all []Asker) {
	t.Helper()
	for _, name := range names {
		a, err := ParseAsker(name)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, a)
	}
	return all
}

// limiter is the handler under test with its log and the requests that it has decided about. Only one call at a time is
// allowed.
type limiter struct {
	http.Handler
	asked []policy.Request
	log   bytes.Buffer
}

func start(t testing.TB, rules string, c Config, names ...string) *limiter {
	t.Helper()
	p, err := policyfile.Parse("test.yaml", []byte("version: 1\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	l := new(limiter)
	c.Engine, c.Askers, c.Logger = policy.NewEngine(memory.New(), p), askers(t, names...), slog.New(slog.NewTextHandler(&l.log, nil))
	c.Engine.Observe(func(_ context.Context, o *policy.Observation) {
		r := *o.Request
		r.Header = r.Header.Clone()
		l.asked = append(l.asked, r)
	})
	l.Handler = Handler(c, http.NotFoundHandler())
	return l
}

const wide = "rules: [{name: wide, limit: 100000/day}]"

// question returns the call in which a kind of proxy asks for a decision about a request.
func question(kind, method, target string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	r.RequestURI = Root + kind
	switch h := r.Header; kind {
	case "envoy":
		r.Method, r.RequestURI, r.Host = method, r.RequestURI+target, "api.test"
		h.Set("X-Sluice-Client", "192.0.2.1")
	case "nginx-accel":
		h.Set("X-Accel-Location", "@backend")
		fallthrough
	case "nginx":
		h.Set("X-Original-Method", method)
		h.Set("X-Original-URI", target)
		h.Set("X-Original-Host", "api.test")
		h.Set("X-Real-IP", "192.0.2.1")
	default:
		h.Set("X-Forwarded-Method", method)
		h.Set("X-Forwarded-Uri", target)
		h.Set("X-Forwarded-Host", "api.test")
		h.Set("X-Forwarded-For", "198.51.100.1, 192.0.2.1")
	}
	return r
}

func (l *limiter) answer(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	l.ServeHTTP(w, r)
	return w
}

func TestQuestions(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/questions.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			first, rules, _ := strings.Cut(c.Setup, "\n")
			var config Config
			if rest, tokens := strings.CutPrefix(rules, "token: secret\n"); tokens {
				rules, config.Authorize = rest, isSecret
			}
			l := start(t, rules, config, strings.Fields(strings.TrimPrefix(first, "askers:"))...)
			c.Play(t, func(step string) string {
				l.asked = nil
				w := l.answer(questionOf(step))
				text := fmt.Sprint(w.Code)
				if status := w.Header().Get("X-RateLimit-Status"); status != "" {
					text += "/" + status
				}
				if location := w.Header().Get("X-Accel-Redirect"); location != "" {
					text += " to " + location
				}
				for _, r := range l.asked {
					target := strings.TrimSuffix(r.Path+"?"+r.RawQuery, "?")
					text += fmt.Sprintf(" decided %s %s %s %s", r.Method, target, r.Host, r.Peer)
					for _, name := range []string{"Authorization", "Cookie", "X-Sluice-Token"} {
						if v := r.Header.Get(name); v != "" {
							text += " " + name + " " + v
						}
					}
				}
				return strings.TrimSpace(text + " " + w.Body.String())
			})
		})
	}
}

// questionOf parses a step of testdata/questions.txt. The first lines of the file explain the format.
func questionOf(step string) *http.Request {
	head, rest, _ := strings.Cut(step, "\n")
	words := strings.Fields(head)
	r := question(words[0], words[1], words[2])
	for line := range strings.SplitSeq(rest, "\n") {
		name, value, given := strings.Cut(line, ": ")
		if body, found := strings.CutPrefix(line, "body "); found {
			r.Body = io.NopCloser(strings.NewReader(body))
			r.ContentLength = int64(len(body))
		} else if path, found := strings.CutPrefix(line, "at "); found {
			r.RequestURI = path
		} else if r.Header.Del(name); given {
			r.Header.Set(name, value)
		}
	}
	return r
}

// If a proxy omits a required field, its value is not guessed. The request is refused in the form that this kind of
// proxy requires, and the missing field is logged once.
func TestMissing(t *testing.T) {
	synctest.Test(t, testMissing)
}

func testMissing(t *testing.T) {
	for kind, refused := range map[string]int{"nginx": 403, "nginx-accel": 503, "caddy": 503, "traefik": 503} {
		for field := range question(kind, "POST", "/a?b=c").Header {
			for _, fault := range []string{"missing", "empty", "twice"} {
				l, r := start(t, wide, Config{}, kind), question(kind, "POST", "/a?b=c")
				switch value := r.Header.Get(field); fault {
				case "missing":
					r.Header.Del(field)
				case "empty":
					r.Header.Set(field, "")
				case "twice":
					if field == "X-Accel-Location" {
						continue // the first one counts
					}
					r.Header.Add(field, value)
				}
				for range 3 {
					h := l.answer(r.Clone(t.Context())).Result()
					denied := h.Header.Get("X-RateLimit-Decision") == "deny" && h.Header.Get("X-RateLimit-Status") == "503"
					if h.StatusCode != refused || denied != (kind == "nginx") {
						t.Errorf("%s, %s %s: %d %v", kind, field, fault, h.StatusCode, h.Header)
					}
				}
				if log := l.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, field) || len(l.asked) > 0 {
					t.Errorf("%s, %s %s: the log has %q, decided about %+v", kind, field, fault, log, l.asked)
				}
			}
		}
	}
}

func TestParseAsker(t *testing.T) {
	for _, name := range []string{"nginx", "nginx+id", "nginx-accel+body+id", "caddy+id", "traefik+body", "envoy+body+id"} {
		if a, err := ParseAsker(name); err != nil || a.String() != name {
			t.Errorf("%s: %v, %v", name, a, err)
		}
	}
	for name, want := range map[string]string{
		"apache":      `unknown proxy kind "apache": use one of nginx, nginx-accel, caddy, traefik, envoy`,
		"":            `unknown proxy kind ""`,
		"nginx+body":  "use the configuration of nginx-accel",
		"caddy+body":  "forward_auth does not send the body",
		"traefik+id":  "a client could choose it",
		"nginx+x":     `unknown option "+x"`,
		"nginx+id+":   `unknown option "+"`,
		"NGINX":       "unknown proxy kind",
		"nginx+id,++": "unknown option",
	} {
		if a, err := ParseAsker(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %s", name, a.kind, err, want)
		}
	}
}

// For any question, the status and the fields of the answer are ones that this kind of proxy interprets as intended.
func FuzzAsk(f *testing.F) {
	f.Add("nginx", "GET", "/a?b", "api.test", "192.0.2.1", "1")
	f.Add("caddy", "HEAD", "//a/%2e%2e/\xff", "[::1]:80", "192.0.2.1, unix:", "")
	f.Add("envoy", "", "*", "a:b:c", "%zone", strings.Repeat("a", 300))
	f.Add("nginx-accel", "CONNECT", "http://a/b#c", "", "::1%eth0", "@b")
	h := start(f, wide, Config{}, "nginx+id", "nginx-accel+body", "caddy+id", "traefik+body", "envoy+body+id")
	f.Fuzz(func(t *testing.T, kind, method, uri, host, client, id string) {
		r := httptest.NewRequest("POST", "/", strings.NewReader("a=b"))
		r.RequestURI = Root + kind
		if kind == "envoy" {
			r.RequestURI, r.Host = r.RequestURI+uri, host
		}
		r.Header = http.Header{
			"X-Original-Method": {method}, "X-Original-Uri": {uri}, "X-Original-Host": {host}, "X-Real-Ip": {client}, "X-Request-Id": {id},
			"X-Forwarded-Method": {method}, "X-Forwarded-Uri": {uri}, "X-Forwarded-Host": {host}, "X-Forwarded-For": {client},
			"X-Sluice-Client": {client}, "X-Accel-Location": {"@" + id},
		}
		h.asked = nil
		h.log.Reset()
		w := h.answer(r)
		denied := w.Header().Get("X-RateLimit-Decision") == "deny"
		switch {
		case w.Code == http.StatusNotFound && !strings.HasPrefix(kind, "nginx") && kind != "caddy":
		case kind == "nginx" && (w.Code == 200 && !denied || w.Code == 403 && denied):
		case kind == "nginx-accel" && w.Code == 200 && strings.HasPrefix(w.Header().Get("X-Accel-Redirect"), "@"):
		case !strings.HasPrefix(kind, "nginx") && w.Code == 200:
		case kind != "nginx" && (w.Code == 429 || w.Code == 400):
		case (kind == "nginx-accel" || kind == "caddy" || kind == "traefik") && w.Code == 503:
		case strings.ContainsAny(kind, "/?*") || w.Code == http.StatusNotFound: // the kind ends before such a character
		default:
			t.Errorf("status %d, %v", w.Code, w.Header())
		}
	})
}

func isSecret(_, token string) error {
	if token != "secret" {
		return errors.New("another token")
	}
	return nil
}
