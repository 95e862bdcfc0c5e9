package answer

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Responses are those in testdata/answers.txt.
func TestAnswers(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/answers.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playAnswers(t, &c) })
		})
	}
}

func playAnswers(t *testing.T, c *testkit.Case) {
	var store sluice.Store = memory.New()
	var encoder Encoder
	for _, word := range c.Options("config") {
		switch word {
		case "draft7":
			encoder.Dialect = Draft7
		case "draft3":
			encoder.Dialect = Draft3
		case "nofields":
			encoder.Dialect = NoRateLimit
		case "xdelta":
			encoder.XFields = XDelta
		case "nox":
			encoder.XFields = NoXFields
		case "unavailable":
			store = unavailableStore{}
		default:
			t.Fatalf("unknown setting %q", word)
		}
	}
	p := policytest.Parse(t, c.Setup)
	engine := policy.NewEngine(store, p)
	var allowed []policy.Decision
	c.Play(t, func(step string) string {
		if step == "leave" { // all requests are handed over to another process
			for _, d := range allowed {
				engine.Place(d)
			}
			return ""
		}
		if wait, found := strings.CutPrefix(step, "wait "); found {
			d, _ := time.ParseDuration(wait)
			time.Sleep(d)
			return ""
		}
		head, body, _ := strings.Cut(step, "\n\n")
		line, fields, _ := strings.Cut(head, "\n")
		r := &policy.Request{Ends: true, Timed: true, Peer: netip.MustParseAddr("192.0.2.1"), Header: make(http.Header)}
		if body != "" {
			r.Body = func(limit int64) ([]byte, error) {
				if int64(len(body)) > limit {
					return nil, nil
				}
				return []byte(body), nil
			}
		}
		for field := range strings.SplitSeq(fields, "\n") {
			if name, value, found := strings.Cut(field, ": "); found {
				r.Header.Add(name, value)
			}
		}
		if from := r.Header.Get("From"); from != "" {
			r.Peer = netip.MustParseAddr(from)
		}
		r.Method, r.Path, _ = strings.Cut(line, " ")
		client := Client{Header: r.Header, Fields: p.Fields(), CORS: p.CORS(), Answers: p.Answers()}
		var a Answer
		h := make(http.Header)
		if r.Method == "QUOTA" {
			r.Method = ""
			d := engine.Quota(t.Context(), r)
			encoder.Quota(&a, h, &d, client)
		} else {
			d := engine.Decide(t.Context(), r)
			allowed = append(allowed, d)
			encoder.Encode(&a, h, &d, client)
		}
		return written(&a, h)
	})
}

// written returns an answer as text: its status, its fields except for the length, and its body.
func written(a *Answer, h http.Header) string {
	text := fmt.Sprintln(a.Status)
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if name != "Content-Length" {
			text += name + ": " + strings.Join(h[name], ", ") + "\n"
		}
	}
	return text + string(a.Body())
}

// The body of a denial has the format that testdata/accept.txt has for the Accept field.
func TestAccept(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/accept.txt") {
		t.Run(c.Name, func(t *testing.T) {
			p := policytest.Parse(t, "rules: []\n"+c.Setup)
			c.Play(t, func(step string) string {
				request := make(http.Header)
				if step != "none" {
					request["Accept"] = strings.Split(step, "\n")
				}
				_, h, body := answered(p, &policy.Decision{RetryAfter: time.Second}, request)
				if c.Setup != "\n" && h.Get("Vary") != "Accept" {
					t.Errorf("%q: Vary is %q", step, h["Vary"])
				}
				if body == "{}" {
					return "own " + h.Get("Content-Type")
				}
				return h.Get("Content-Type")
			})
		})
	}
}

// If Accept is longer than maxAccept or has too many elements, the default is chosen.
func TestLongAccept(t *testing.T) {
	for _, test := range []struct {
		accept []string
		want   int
	}{
		{[]string{"text/plain" + strings.Repeat(" ", maxAccept-10)}, plainText},
		{[]string{"text/plain", strings.Repeat(" ", maxAccept-9)}, problemJSON},
		{append(slices.Repeat([]string{"a/b"}, 1000), "text/plain"), problemJSON},
		{[]string{",,;;==/*\x00\xff"}, problemJSON},
	} {
		if got := negotiate(test.accept); got != test.want {
			t.Errorf("%.60q: %s, want %s", test.accept, offers[got], offers[test.want])
		}
	}
}

// FuzzNegotiate checks that the chosen type is in Accept, or is the default.
func FuzzNegotiate(f *testing.F) {
	f.Add("text/plain;q=0.5, */*;q=0.1", "application/json")
	f.Add("text/*; q=1.000 ;x", "\";,")
	f.Fuzz(func(t *testing.T, a, b string) {
		got := negotiate([]string{a, b})
		if got == problemJSON {
			return
		}
		kind, _, _ := strings.Cut(offers[got], "/")
		asked := strings.ToLower(a + "," + b)
		if !strings.Contains(asked, offers[got]) && !strings.Contains(asked, kind+"/*") && !strings.Contains(asked, "*/*") {
			t.Errorf("%q: %s", asked, offers[got])
		}
		// An additional type does not change the choice.
		full := tooMany([]string{a, b, strings.Repeat(",", 4) + "x/y;q=0"})
		if again := negotiate([]string{a, b, "x/y;q=0"}); again != got && !full {
			t.Errorf("%q: %s, then %s", asked, offers[got], offers[again])
		}
	})
}
