package authrequest

import (
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluicehq/sluice/internal/exchange"
)

// answering turns an answer into what a kind of proxy understands.
type answering struct {
	own      exchange.Exchange
	exchange *exchange.Exchange
	kind     *kind
	location string // where a request that passes is to go on
	bodiless bool   // the question has another method than the HEAD that it is about
}

// Head returns the status as the proxy wants it.
func (a *answering) Head(status int) int {
	h := a.exchange.Header()
	if a.bodiless {
		delete(h, "Content-Length") // there is no body
	}
	switch {
	case status == http.StatusOK && a.location != "":
		h.Set("X-Accel-Redirect", a.location)
	case status == http.StatusOK:
	case a.kind.deny != 0:
		h.Set("X-Ratelimit-Decision", "deny")
		h.Set("X-Ratelimit-Status", strconv.Itoa(status))
		return a.kind.deny
	case a.kind.only4xx && status >= http.StatusInternalServerError:
		return http.StatusTooManyRequests
	}
	return status
}

// refuse answers a question that cannot be decided about.
func (a *answering) refuse(status int, text string) {
	h := a.exchange.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	a.exchange.WriteHeader(status)
	_, _ = a.exchange.Write([]byte(text)) // an error is the proxy's, which has left
}

// quiet is for how long a fault is not logged again.
const quiet = 10 * time.Second

// faults logs what is wrong with how a proxy is configured, and not for each request.
type faults struct {
	log *slog.Logger

	mu   sync.Mutex
	last time.Time
	more int // that were not logged since
}

func (f *faults) note(k *kind, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.last.IsZero() && time.Since(f.last) < quiet {
		f.more++
		return
	}
	f.log.Error("an auth request cannot be decided about, and is refused: compare the configuration of the proxy with the example",
		"proxy", k.name, "problem", err.Error(), "example", k.example, "more", f.more)
	f.last, f.more = time.Now(), 0
}
