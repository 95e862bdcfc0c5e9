//go:build long

package llm

import (
	"encoding/json"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// wide is a policy that does not read bodies.
const wide = `
version: 1
rules: [{name: wide, match: /v1/, key: [client_ip], limit: 100000/day}]
`

// An SDK gets the same results through the gateway as without it.
func TestLongSDKsPassThrough(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, wide)
	everySDK(t, func(t *testing.T, c call) {
		for name, edit := range map[string]func(*call){
			"plain":         func(*call) {},
			"stream":        func(c *call) { c.Stream, c.Usage = true, true },
			"without usage": func(c *call) { c.Stream = true },
			"tool":          func(c *call) { c.Tools = true },
			"tool stream":   func(c *call) { c.Tools, c.Stream, c.Usage = true, true, true },
			"cut":           func(c *call) { c.MaxTokens, c.Stream = 5, true },
			"long":          func(c *call) { c.Text, c.Stream, c.MaxTokens = "Write 9000 words", true, 10_000 },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := c
				edit(&c)
				c.URL = up.URL
				want := ask(t, c)
				c.URL = g.URL
				if got := ask(t, c); asJSON(t, got) != asJSON(t, want) {
					t.Errorf("through the gateway\n%s\nwithout it\n%s", asJSON(t, got), asJSON(t, want))
				}
				if want.Encoding != "gzip" || want.Error != nil || want.Calls != 1 || want.Finish == "" || want.Text == "" && want.Tool == nil {
					t.Errorf("not a whole, compressed answer: %s", asJSON(t, want))
				}
			})
		}
	})
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// If a client leaves in the middle of a stream, its request to the upstream is cancelled.
func TestLongSDKsLeave(t *testing.T) {
	t.Parallel()
	everySDK(t, func(t *testing.T, c call) {
		up := serveModels(t)
		c.URL = up.gateway(t, wide).URL
		c.Model, c.Stream, c.LeaveAfter = "sample-slow", true, 8
		if a := ask(t, c); a.Events != 8 || a.Error != nil {
			t.Errorf("%+v", a)
		}
		testkit.Await(t, "the upstream notices that the client has left", func() bool { return up.left.Load() == 1 })
	})
}

// An SDK gets an error for a stream that breaks off, and retries after a failure.
func TestLongSDKsFailures(t *testing.T) {
	t.Parallel()
	up := serveModels(t)
	g := up.gateway(t, wide)
	everySDK(t, func(t *testing.T, c call) {
		c.URL, c.Model, c.Retries = g.URL, "sample-fast-fails", 1
		plain := ask(t, c)
		c.Stream = true
		stream := ask(t, c)
		if plain.Error == nil || plain.Error.Status != 500 || plain.Calls != 2 {
			t.Errorf("status 500: %s", asJSON(t, plain))
		}
		if stream.Error == nil || stream.Error.Status != 0 || stream.Calls != 1 {
			t.Errorf("a stream that breaks off: %s", asJSON(t, stream))
		}
	})
}
