package httplimit

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"

	"github.com/sluicehq/sluice/policy"
)

// Settle says what a handler knows better than its response tells, for rules of [Policy] that go
// by the outcome of the request: its Verdict, its Cost, or a Status in place of that of the
// response. What is zero comes from the response; Header and Bytes always do. The context is that of
// the request. If no rule goes by the outcome, Settle does nothing.
//
// Limits of [Config.Limit] and [Config.LimitBy] go by its Verdict and its Cost if [Config]
// AwaitOutcome is set, but for leaky buckets. The response says nothing about them.
//
// Call it before the response begins: a rule that knows by then what it goes by is settled before
// the client hears of it. Others, such as those by the length of the response, or by a cost that
// no header has told, are settled when the handler returns; until then there is time for their
// Cost. Do not call it while the handler writes.
func Settle(ctx context.Context, o policy.Outcome) {
	for s, _ := ctx.Value(settlingKey{}).(*settling); s != nil; s = s.outer {
		s.said = o
	}
}

// settlingKey is the key of the *settling in the context of a request.
type settlingKey struct{}

// settling is the ResponseWriter of a request whose outcome rules go by. It settles before
// the response begins, so that the client's next request meets what is given back, and again when
// the handler has returned.
type settling struct {
	http.ResponseWriter
	request  *http.Request
	door     *door
	decision policy.Decision
	taken    taken          // by a limiter
	awaits   bool           // else nothing is settled, and only places in flight are released
	length   int64          // of the body, if it is known and there are such places
	outer    *settling      // of a door in front of this one
	said     policy.Outcome // by the handler
	status   int            // 0: it has not begun
	silent   bool           // the handler has returned without an answer
	bytes    int64          // of the body
}

// awaits reports whether something waits for the outcome of the request.
func (c *call) awaits() bool { return c.decision.Unsettled() || c.taken.limiter != nil }

// settling returns what settles the request.
func (c *call) settling() *settling {
	s := &settling{ResponseWriter: c.w, request: c.r, door: c.door, decision: c.decision, taken: c.taken, awaits: c.awaits()}
	s.decision.Results = nil // their memory is used again
	if s.taken.limiter != nil {
		s.decision.Results = slices.Clone(c.decision.Results)
	}
	s.outer, _ = c.r.Context().Value(settlingKey{}).(*settling)
	return s
}

func (s *settling) serve(next http.Handler) {
	if s.decision.Held() {
		defer s.door.policy.engine.Release(s.request.Context(), s.decision)
	}
	returned := false
	defer func() { s.end(returned) }()
	next.ServeHTTP(s, s.request.WithContext(context.WithValue(s.request.Context(), settlingKey{}, s)))
	returned = true
}

// end settles the rest. A handler that has panicked before it has responded leaves an outcome
// that nobody knows.
func (s *settling) end(returned bool) {
	if s.status == 0 && returned {
		s.status, s.silent = http.StatusOK, true
	}
	s.settle(s.bytes)
}

// begin settles what the head of the response says, once.
func (s *settling) begin(status int) {
	switch {
	case s.status == 0:
		s.status = status
		if s.decision.Held() && s.request.Method != http.MethodHead {
			s.length, _ = strconv.ParseInt(s.Header().Get("Content-Length"), 10, 64)
		}
		s.settle(-1)
	case s.silent && s.awaits:
		s.door.tooLate.Do(s.door.logTooLate)
	}
}

func (s *settling) settle(bytes int64) {
	s.door.decider.settle(s, policy.Outcome{Status: cmp.Or(s.said.Status, s.status), Header: s.Header(), Bytes: bytes, Verdict: s.said.Verdict, Cost: s.said.Cost})
}

// Unwrap is for http.ResponseController.
func (s *settling) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *settling) WriteHeader(status int) {
	if status >= 200 || status == http.StatusSwitchingProtocols {
		s.begin(status)
	}
	s.ResponseWriter.WriteHeader(status)
}

func (s *settling) Write(p []byte) (int, error) {
	s.begin(http.StatusOK)
	n := 0
	if rest := len(p) - 1; rest > 0 && s.length > 0 && s.bytes+int64(len(p)) >= s.length {
		// The last byte by itself stays in the server's buffer until the handler has returned and the
		// place is free: a client that asks anew when it has read all is not refused for this request.
		wrote, err := s.ResponseWriter.Write(p[:rest])
		if s.wrote(int64(wrote)); err != nil {
			return wrote, err
		}
		n, p = wrote, p[rest:]
	}
	wrote, err := s.ResponseWriter.Write(p)
	s.wrote(int64(wrote))
	return n + wrote, err
}

// WriteString is for io.WriteString.
func (s *settling) WriteString(text string) (int, error) {
	s.begin(http.StatusOK)
	if s.length > 0 {
		return s.Write([]byte(text))
	}
	n, err := io.WriteString(s.ResponseWriter, text)
	s.wrote(int64(n))
	return n, err
}

// ReadFrom is for io.Copy, which lets the system copy a file.
func (s *settling) ReadFrom(r io.Reader) (int64, error) {
	s.begin(http.StatusOK)
	if s.length <= 0 {
		n, err := io.Copy(s.ResponseWriter, r)
		s.wrote(n)
		return n, err
	}
	n, err := io.CopyN(s.ResponseWriter, r, max(0, s.length-s.bytes-1))
	if s.wrote(n); err == io.EOF {
		return n, nil
	} else if err != nil {
		return n, err
	}
	last, err := io.Copy(struct{ io.Writer }{s}, r)
	return n + last, err
}

// wrote counts n bytes. What is written in answer to HEAD is not sent.
func (s *settling) wrote(n int64) {
	if s.request.Method != http.MethodHead {
		s.bytes += n
	}
}

// FlushError sends the header, if that has not been done.
func (s *settling) FlushError() error {
	s.begin(http.StatusOK)
	return http.NewResponseController(s.ResponseWriter).Flush()
}

// Flush is for handlers that ask for an http.Flusher.
func (s *settling) Flush() { _ = s.FlushError() }

// CloseNotify is for gin, whose Context.Stream panics without it.
func (s *settling) CloseNotify() <-chan bool {
	left := make(chan bool, 1)
	context.AfterFunc(s.request.Context(), func() { left <- true })
	return left
}

// Hijack is for WebSockets: the connection is taken over, and nothing more is seen of it.
func (s *settling) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil {
		s.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}
