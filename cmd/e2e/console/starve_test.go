package console

import (
	"io"
	"net/http"
	"testing"
)

// However many pages are kept up to date, and however many connections browsers keep for later, probes
// and scrapers get through.
func TestProbesGetThrough(t *testing.T) {
	t.Parallel()
	p := serve(t, "--policy", write(t, "policy.yaml", layered))
	streams := 0
	for _, path := range []string{"/live", "/v1/events"} {
		for range 80 {
			client := &http.Client{Transport: &http.Transport{}} // a connection of its own, that it keeps
			t.Cleanup(client.CloseIdleConnections)
			answer, err := client.Get(p.admin + path)
			if err != nil {
				continue // one too many is closed
			}
			if answer.StatusCode == http.StatusOK {
				t.Cleanup(func() { answer.Body.Close() })
				streams++
				continue
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}
	if streams < 8 {
		t.Errorf("only %d pages are kept up to date", streams)
	}
	for range 20 {
		for _, path := range []string{"/readyz", "/metrics"} {
			client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			answer, err := client.Get(p.admin + path)
			if err != nil {
				t.Fatalf("with %d streams: %s: %v", streams, path, err)
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	}
}
