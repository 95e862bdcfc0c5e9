package httplimit

import (
	"cmp"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// Config has the settings of a middleware. The zero value is a good default.
type Config struct {
	// Dialect is the form of the RateLimit fields: [answer.Draft11] if zero. A policy may leave these fields or the
	// X-RateLimit fields out: see [policy.Fields].
	Dialect answer.Dialect
	// XFields is the form of the X-RateLimit fields: [answer.XUnix] if zero.
	XFields answer.XFields
	// Name is the name of the limit of [Config.Limit] in responses. If empty, it is the name of the limiter, or
	// "default" if that is empty, too.
	Name string
	// DegradedField adds "X-RateLimit-Degraded: true" to a response if the decision was made without the store.
	DegradedField bool
	// ForwardedHeader is the header that trusted proxies write, for [Config.Policy]: see Header in [ClientIP]. The
	// policy lists the trusted proxies.
	ForwardedHeader string
	// Attributes sets values that only the program knows, such as the user from the request's context, for rules of
	// [Config.Policy] with a key such as "key: [attr:user]". The function fills the map, which is empty at first,
	// and must not keep it.
	Attributes func(r *http.Request, attributes map[string]string)
	// RequestID returns the ID of a request for [Config.Policy], or "" if it has none. A repeated request with the
	// same ID is not charged again: see [policy.Request] ID.
	RequestID func(r *http.Request) string
	// Door names this integration in the observations that observers of the engine receive: "http" if empty.
	Door string
	// TLSFingerprint returns the JA4 fingerprint of the client's TLS, or "" without TLS, for rules of
	// [Config.Policy] with "key: [tls_fingerprint]". Compute it from the ClientHelloInfo given to
	// [crypto/tls.Config.GetConfigForClient].
	TLSFingerprint func(r *http.Request) string
	// BodyTimeout is the time for reading the first 64 KiB of a body that rules count by, or of the body of a
	// request in a queue. The time starts again at 64 KiB, and each time the amount read has doubled: at 128 KiB,
	// 256 KiB and so on. Zero means 10 s. A slower body counts as ambiguous, and the handler's reads of it fail,
	// too. If the server has a ReadTimeout, that applies instead.
	BodyTimeout time.Duration
	// Refuse writes the answers to denied requests, in place of the middleware: see [Refusal].
	Refuse Refusal
	// KeepDecision lets handlers read the decision: see [DecisionFrom]. It costs a copy of the decision and of the
	// request for each allowed request.
	KeepDecision bool
	// AwaitOutcome lets handlers behind [Config.Limit] and [Config.LimitBy] call [Settle] to set whether a request
	// counts, and its cost. It costs a copy of each allowed request. Policies do not need it.
	AwaitOutcome bool
	// AuthOnly is for a handler that authorizes requests which another server serves, as for nginx's auth_request.
	// The end of such a request is unknown, so it takes no permit: rules with in_flight deny it while all permits
	// are taken, but do not count it.
	AuthOnly bool
	// QuotaPath is a path such as /v1/quota. [Config.Policy] answers GET and HEAD requests for it with the
	// remaining quota of the client: see [answer.Encoder.Quota]. Such requests are not counted. The answer has the
	// limits of rules that apply to every path. With ?path=/orders, and &method=POST for a method other than GET,
	// it also has the limits that apply to such a request. Rules that use the query or the body are left out. A
	// blocked client gets 403. If QuotaPath is empty, no path is answered like this.
	QuotaPath string
	// Logger gets a line when the store becomes unavailable, when it is available again (unless the store is a
	// failover.Store, which logs this itself), and for other warnings. Nil means slog.Default().
	Logger *slog.Logger
}

// Limit returns a middleware that takes one unit of limiter for each request, under the key that the function key
// returns. If key is nil, the key is the client's address: see [ClientIP.Key]. Requests with equal keys share a
// limit, including those with an empty key. If the store does not answer, requests are allowed; a limiter with
// OnError [sluice.Deny] denies them with status 503.
func Limit(limiter *sluice.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, key)
}

// Policy returns a middleware that decides about requests by the policy of engine.
func Policy(engine *policy.Engine) func(http.Handler) http.Handler {
	return Config{}.Policy(engine)
}

// Limit does what the function [Limit] does, with the settings of c.
func (c Config) Limit(limiter *sluice.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	if limiter == nil {
		panic("httplimit: Limit needs a limiter: sluice.NewLimiter returns one, or an error")
	}
	if key == nil {
		key = ClientIP{}.Key
	}
	return c.LimitBy(func(r *http.Request) (Choice, error) { return Choice{Limiter: limiter, Key: key(r)}, nil })
}

// Policy does what the function [Policy] does, with the settings of c.
func (c Config) Policy(engine *policy.Engine) func(http.Handler) http.Handler {
	if engine == nil {
		panic("httplimit: Policy needs an engine: policy.NewEngine returns one")
	}
	c.Door = cmp.Or(c.Door, "http")
	return c.middleware(&door{engine: engine})
}

func (c Config) middleware(d *door) func(http.Handler) http.Handler {
	d.config = c
	d.encoder = answer.Encoder{Dialect: c.Dialect, XFields: c.XFields, DegradedField: c.DegradedField}
	d.outage = answer.Outage{Logger: c.Logger}
	d.calls.New = func() any { return newCall(d) }
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			admitted, s, body := d.admit(w, r)
			if body != nil {
				defer body.release()
			}
			switch {
			case admitted == nil:
			case s != nil:
				s.serve(next)
			default:
				next.ServeHTTP(w, admitted)
			}
		})
	}
}
