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

// Settle sets the Verdict, the Cost and the Status of a request's outcome, for the rules of [Policy] that depend on
// the outcome. If one of these fields is zero, its value comes from the response. Header and Bytes always come from
// the response. ctx is the context of the request. Without rules that depend on the outcome, Settle does nothing.
//
// If AwaitOutcome in [Config] is set, limits of [Config.Limit] and [Config.LimitBy] use the Verdict and the Cost,
// unless they are leaky buckets. Without a call of Settle, these limits never depend on the response.
//
// Call Settle before the response starts: a rule that has all it needs by then is settled before the client gets the
// head. Other rules are settled when the handler returns, and until then Settle can set their Cost. These are, for
// example, rules that count the bytes of the response, and rules that take their cost from a response header that is
// not set yet. Do not call Settle while the handler writes.
func Settle(ctx context.Context, o policy.Outcome) {
	for s, _ := ctx.Value(settlingKey{}).(*settling); s != nil; s = s.outer {
		s.override = o
	}
}

// settlingKey is the key of the *settling in the context of a request.
type settlingKey struct{}

// settling settles a request with rules that depend on its outcome. It does so before the response starts, so that
// the client's next request can use the refunded units, and again when the handler has returned.
type settling struct {
	own      exchange.Exchange
	exchange *exchange.Exchange
	request  *http.Request
	door     *door
	decision policy.Decision
	taken    taken                  // the charge of a limiter
	awaits   bool                   // false if only permits in flight are released
	outer    *settling              // the settling of a middleware in front of this one
	override policy.Outcome         // the outcome set by the handler
	reader   *policy.ResponseReader // nil if no rule reads the response's body
	status   int                    // 0 until the response starts
	silent   bool                   // the handler has returned without an answer
	timer    *timer                 // nil without an automatic limit of requests in flight
}

// awaits reports whether a charge is settled by the outcome of the request.
func (c *call) awaits() bool { return c.decision.Unsettled() || c.taken.limiter != nil }

// settling returns the settling of an allowed request.
func (c *call) settling() *settling {
	s := &settling{request: c.r, door: c.door, decision: c.decision, taken: c.taken, awaits: c.awaits()}
	s.decision.Results, s.decision.Loads = nil, nil // their memory is reused
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

// end settles the charges that depend on the whole response. returned is false if the handler has panicked. If it
// panicked before it responded, or if it did not respond and the client has left, the outcome is unknown.
func (s *settling) end(returned bool) {
	s.exchange.Leave(&s.own)
	left := s.request.Context().Err() != nil
	if s.status == 0 && returned {
		s.silent = true
		if !left {
			s.status = http.StatusOK
		}
	}
	s.answered(s.status)
	if s.reader != nil {
		s.reader.Interrupted = !returned || left
	}
	bytes := s.exchange.Bytes
	if s.request.Method == http.MethodHead { // the server discards the body
		bytes = 0
	}
	s.settle(bytes)
}

// Head settles the charges that depend on the head of the response.
func (s *settling) Head(status int) int {
	switch {
	case !exchange.Final(status):
	case !s.silent:
		s.status = status
		s.answered(status)
		s.watchBody(status)
		if (s.decision.HeldToEnd() || s.reader != nil) && s.request.Method != http.MethodHead {
			// The last byte is sent only when the permit is free and the reservation is settled. So a client that
			// sends its next request after reading all of the response is not denied because of this one.
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

// watchBody passes the body of the response to a reader, if a rule counts by it.
func (s *settling) watchBody(status int) {
	if status == http.StatusSwitchingProtocols || s.request.Method == http.MethodHead || s.exchange.Lost {
		return
	}
	if s.reader = s.decision.ReadResponse(s.exchange.Header()); s.reader != nil {
		s.exchange.Watch(s.reader)
	}
}

func (s *settling) settle(bytes int64) {
	o := policy.Outcome{Status: cmp.Or(s.override.Status, s.status), Header: s.exchange.Header(), Bytes: bytes, Verdict: s.override.Verdict, Cost: s.override.Cost, Read: s.reader}
	if engine := s.door.engine; engine != nil {
		engine.Settle(s.request.Context(), s.decision, o)
	} else {
		s.taken.settle(s, o)
	}
}
