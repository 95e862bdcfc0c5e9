package httplimit

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/policy"
)

// Settle overrides the outcome of a request for the rules of [Policy] that depend on it: its Verdict, its Cost, or
// its Status. Zero fields come from the response, and Header and Bytes always do. ctx is that of the request.
// Without rules that depend on the outcome, Settle does nothing.
//
// Limits of [Config.Limit] and [Config.LimitBy] use its Verdict and its Cost if [Config] AwaitOutcome is set,
// except leaky buckets. They do not depend on the response.
//
// Call it before the response starts: rules with a known outcome are settled before the client gets the head.
// Others, such as rules by the length of the response, or with a cost that no header has set, are settled when the
// handler returns; until then Settle can set their Cost. Do not call it while the handler writes.
func Settle(ctx context.Context, o policy.Outcome) {
	for s, _ := ctx.Value(settlingKey{}).(*settling); s != nil; s = s.outer {
		s.said = o
	}
}

// settlingKey is the key of the *settling in the context of a request.
type settlingKey struct{}

// settling is a request with rules that depend on its outcome. It settles before the response starts, so that the
// client's next request finds what is given back, and again when the handler has returned.
type settling struct {
	own      exchange.Exchange
	exchange *exchange.Exchange
	request  *http.Request
	door     *door
	decision policy.Decision
	taken    taken                  // by a limiter
	awaits   bool                   // else nothing is settled, and only places in flight are released
	outer    *settling              // of a door in front of this one
	said     policy.Outcome         // by the handler
	reader   *policy.ResponseReader // of the body; nil if no rule reads it
	status   int                    // 0: the response has not begun
	silent   bool                   // the handler has returned without an answer
	timer    *timer                 // nil without automatic limits of requests under way
}

// awaits reports whether something waits for the outcome of the request.
func (c *call) awaits() bool { return c.decision.Unsettled() || c.taken.limiter != nil }

// settling returns what settles the request.
func (c *call) settling() *settling {
	s := &settling{request: c.r, door: c.door, decision: c.decision, taken: c.taken, awaits: c.awaits()}
	s.decision.Results, s.decision.Loads = nil, nil // their memory is used again
	if s.taken.limiter != nil {
		s.decision.Results = slices.Clone(c.decision.Results)
	}
	s.outer, _ = c.r.Context().Value(settlingKey{}).(*settling)
	s.exchange = exchange.Join(c.w, c.r, &s.own, s)
	return s
}

func (s *settling) serve(next http.Handler) {
	if s.decision.Held() {
		defer s.door.engine.Release(s.request.Context(), s.decision)
	}
	returned := false
	defer func() { s.end(returned) }()
	r := s.request.WithContext(context.WithValue(s.request.Context(), settlingKey{}, s))
	if s.decision.Adapts() {
		s.timer = startTimer(r)
	}
	next.ServeHTTP(s.exchange, r)
	returned = true
}

// end settles the rest. A handler that has panicked before it has responded leaves an unknown outcome.
func (s *settling) end(returned bool) {
	s.exchange.Leave(&s.own)
	if s.status == 0 && returned {
		s.status, s.silent = http.StatusOK, true
	}
	s.answered(s.status)
	if s.reader != nil {
		s.reader.Interrupted = !returned || s.request.Context().Err() != nil
	}
	bytes := s.exchange.Bytes
	if s.request.Method == http.MethodHead { // what is written then is not sent
		bytes = 0
	}
	s.settle(bytes)
}

// Head settles by the head of the response.
func (s *settling) Head(status int) int {
	switch {
	case !exchange.Final(status):
	case !s.silent:
		s.status = status
		s.answered(status)
		s.watchBody(status)
		if (s.decision.HeldToEnd() || s.reader != nil) && s.request.Method != http.MethodHead {
			// A client that asks again when it has read all is not refused for this request: the last byte
			// leaves when the place is free and the reservation is settled.
			if length := s.exchange.Header().Get("Content-Length"); length != "" {
				s.exchange.Length, _ = strconv.ParseInt(length, 10, 64)
			}
		}
		s.settle(-1)
	case s.awaits:
		s.door.tooLate.Do(s.door.logTooLate)
	}
	return status
}

// watchBody starts to read the body of the response, if a rule counts by it.
func (s *settling) watchBody(status int) {
	if status == http.StatusSwitchingProtocols || s.request.Method == http.MethodHead || s.exchange.Lost {
		return
	}
	if s.reader = s.decision.ReadResponse(s.exchange.Header()); s.reader != nil {
		s.exchange.Watch(s.reader)
	}
}

func (s *settling) settle(bytes int64) {
	o := policy.Outcome{Status: cmp.Or(s.said.Status, s.status), Header: s.exchange.Header(), Bytes: bytes, Verdict: s.said.Verdict, Cost: s.said.Cost, Read: s.reader}
	if engine := s.door.engine; engine != nil {
		engine.Settle(s.request.Context(), s.decision, o)
	} else {
		s.taken.settle(s, o)
	}
}
