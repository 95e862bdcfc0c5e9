package authrequest

import (
	"net/http"
	"strconv"
	"time"

	"github.com/sluicehq/sluice/internal/exchange"
)

// answering converts answers to the form that a kind of proxy expects.
type answering struct {
	own      exchange.Exchange
	exchange *exchange.Exchange
	kind     *kind
	location string // the named location of nginx that serves an allowed request, or ""
	bodiless bool   // the client's request is a HEAD, but the proxy's request is not
}

// Head returns the status that the proxy expects.
func (a *answering) Head(status int) int {
	h := a.exchange.Header()
	if a.bodiless {
		delete(h, "Content-Length") // the answer has no body
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

// refuse answers the proxy's request if no decision is possible.
func (a *answering) refuse(status int, text string) {
	h := a.exchange.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	a.exchange.WriteHeader(status)
	_, _ = a.exchange.Write([]byte(text)) // fails only if the proxy has left
}

// quiet is the minimum time between logged faults.
const quiet = 10 * time.Second

// note logs an error in the proxy's configuration, but not for every request.
func (d *decider) note(err error) {
	if d.faults.Opens(quiet) {
		d.log.Error("invalid auth request denied: compare the configuration of the proxy with the example",
			"proxy", d.kind.name, "problem", err.Error(), "example", d.kind.example)
	}
}
