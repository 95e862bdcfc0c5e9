package e2e

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Each event of a stream that a rule reads reaches the client before the upstream sends the next one, with every
// version of HTTP on both sides. The stream is charged the usage in its last event.
func TestStreamsWhileRead(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	policy := testkit.File(t, "policy.yaml", `
version: 1
rules: [{name: tokens, limit: 100000/day, algorithm: fixed_window, cost: {tokens: total}}]
`)
	for _, scheme := range []string{"http", "h2c", "https"} {
		next := make(chan struct{})
		g := secure(t, ours, "--policy", policy, "--upstream-ca", ours.CA, "--upstream", eventsUpstream(t, scheme, ours, next))
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			for i, http2 := range []bool{false, true} {
				readEvents(t, over(t, ours.Client(), http2), g.URL, next)
				g.AwaitMetric(`sluice_cost_settled_units_total{rule="tokens",unit="tokens"}`, float64(27*(i+1)))
			}
		})
	}
}

// manyEvents is the number of events before the one with the usage.
const manyEvents = 20

// eventsUpstream starts an upstream that sends an event whenever it receives from next, and returns its URL.
func eventsUpstream(t *testing.T, scheme string, ours *testkit.Authority, next <-chan struct{}) string {
	t.Helper()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i := range manyEvents + 1 {
			select {
			case <-next:
			case <-r.Context().Done():
				return
			}
			usage := "null"
			if i == manyEvents {
				usage = `{"prompt_tokens":20,"completion_tokens":7}`
			}
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"word %d\"}}],\"usage\":%s}\n\n", i, usage)
			if err := http.NewResponseController(w).Flush(); err != nil {
				return
			}
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(scheme == "http")
	s.Config.Protocols.SetHTTP2(scheme == "https")
	s.Config.Protocols.SetUnencryptedHTTP2(scheme == "h2c")
	if scheme == "https" {
		certificate, err := tls.LoadX509KeyPair(ours.Make("upstream"))
		if err != nil {
			t.Fatal(err)
		}
		s.EnableHTTP2, s.TLS = true, &tls.Config{Certificates: []tls.Certificate{certificate}}
		s.StartTLS()
	} else {
		s.Start()
	}
	t.Cleanup(s.Close)
	return scheme + "://" + s.Listener.Addr().String()
}

// readEvents reads a stream, and requests each event after it has received the one before.
func readEvents(t *testing.T, c *http.Client, url string, next chan<- struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ask := func() {
		select {
		case next <- struct{}{}:
		case <-ctx.Done():
			t.Error("the upstream does not wait for the next event")
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	go ask()
	began := time.Now()
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := bufio.NewScanner(resp.Body)
	for i := 0; events.Scan(); {
		if !strings.HasPrefix(events.Text(), "data: ") {
			continue
		}
		if want := fmt.Sprintf("word %d", i); !strings.Contains(events.Text(), want) {
			t.Fatalf("%q is not %q", events.Text(), want)
		}
		if i++; i <= manyEvents {
			ask()
		}
	}
	if err := events.Err(); err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
}
