package policy

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/sluicehq/sluice"
)

// Request is what a policy looks at. Doors fill it in; the zero value of a field says
// that the door has no such thing.
type Request struct {
	Method string // "GET"; empty is GET
	Host   string // as in http.Request, with or without a port
	// Path is the path as it was sent, escaped ("/a%2fb"), without the query.
	Path     string
	RawQuery string
	// Client is the address of the client, after the door has resolved forwarded
	// headers with the help of [Engine.TrustedProxies].
	Client netip.Addr
	Header http.Header
	// Body returns the whole body if it has at most limit bytes, else nil; and an error
	// if it broke off, so that nobody gets to see the whole of it. The door restores it
	// for whoever comes next. It is called at most once: if a rule that matches needs it,
	// or with a limit of 0 to learn whether a preflight has one. May be nil.
	Body func(limit int64) ([]byte, error)
	// Room is memory for the Results of the decision, so that a door that is done with
	// one can use it for the next. May be nil.
	Room []Result
}

// Decision is the answer of an [Engine] to a request.
type Decision struct {
	// Allowed says that the request may pass, after Delay.
	Allowed bool
	// Exempt says that a rule, or cors a preflight, has exempted it: nothing was counted, Results is empty.
	Exempt bool
	// Degraded says that the shared store did not answer, and that each rule's
	// on_error has decided in its place.
	Degraded bool
	// Unavailable says that the request is refused because of that, and not because of
	// a limit. RetryAfter then says when to ask again.
	Unavailable bool
	// Missing names what a request lacks to be decided about: "an unambiguous path",
	// where servers could read it in too many ways, or the part of a key that a rule with
	// "missing: refuse" asks for, for example "header:X-API-Key". Such a request is
	// refused as malformed.
	Missing string
	// RetryAfter is the longest wait of the results that refuse, or [sluice.Never].
	RetryAfter time.Duration
	// Delay is the longest delay of the results, if Allowed.
	Delay time.Duration
	// Now is the store's clock in microseconds since the Unix epoch. It is zero if no
	// store has answered; of the results only Allowed means something then.
	Now int64
	// Err is what the store has said in place of an answer, for a log.
	Err error
	// Results has an entry for each rule that applied, in the order of the document.
	Results []Result

	taken []sluice.Charge // what Refund gives back, if there is a Delay
}

// Result is what one rule has said.
type Result struct {
	Rule   string // its name
	Plan   *sluice.Plan
	From   string // what the limit was resolved from: "rule", "tier:pro" or "override"
	Cost   int64
	Shadow bool // counts and reports, never refuses
	sluice.Decision
}
