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
	// Dialect is the form of the RateLimit fields: [answer.Draft11] if zero. A policy may leave out these or the
	// X-RateLimit fields: see [policy.Fields].
	Dialect answer.Dialect
	// XFields is the form of the X-RateLimit fields: [answer.XUnix] if zero.
	XFields answer.XFields
	// Name is what [Config.Limit] calls its limit to clients. If empty it is the name of
	// the limiter, and "default" if that has none.
	Name string
	// DegradedField adds "X-RateLimit-Degraded: true" to responses to requests that
	// were decided without the store.
	DegradedField bool
	// ForwardedHeader is the [ClientIP] Header for [Config.Policy], which takes the
	// trusted proxies from the policy.
	ForwardedHeader string
	// Attributes sets what only the program knows of a request, such as the user from its
	// context, for rules of [Config.Policy] with "key: [attr:user]". The map is empty, and only
	// to be used until Attributes returns.
	Attributes func(r *http.Request, attributes map[string]string)
	// RequestID returns the ID of a request for [Config.Policy], so that a repeated request is not charged again:
	// see [policy.Request] ID. If it is empty, the request has no ID.
	RequestID func(r *http.Request) string
	// Door is the name of this integration for observers of the engine: "http" if empty.
	Door string
	// TLSFingerprint returns the JA4 of the client's TLS, for rules of [Config.Policy] with "key:
	// [tls_fingerprint]", or "" without TLS. Compute it from the ClientHelloInfo given to
	// [crypto/tls.Config.GetConfigForClient].
	TLSFingerprint func(r *http.Request) string
	// BodyTimeout bounds the time for reading the first 64 KiB of a body that rules count by, or of a request in a
	// queue, and for each further part that is as large as all before it: 10 s if zero. A slower body counts as
	// garbled, and the handler's reads of it fail, too. If the server has a ReadTimeout, that applies instead.
	BodyTimeout time.Duration
	// Refuse writes the answers to refused requests, in place of the middleware: see [Refusal].
	Refuse Refusal
	// KeepDecision lets handlers look at the decision: see [DecisionFrom]. It costs a copy of
	// the decision and of the request for each request that passes.
	KeepDecision bool
	// AwaitOutcome lets handlers behind [Config.Limit] and [Config.LimitBy] call [Settle] to set whether a request
	// counts, and its cost. It costs a copy of each allowed request. Rules of a policy that depend on the outcome
	// do not need it.
	AwaitOutcome bool
	// AuthOnly is for a handler that only authorizes requests which another server serves, as behind nginx's
	// auth_request: the end of a request is unknown, so it takes no permit, and rules with in_flight only look.
	AuthOnly bool
	// QuotaPath is a path such as /v1/quota, at which [Config.Policy] answers GET and HEAD itself, with the
	// remaining quota of the caller: see [answer.Encoder.Quota]. Such requests are not counted. The limits are
	// those of rules for all paths, and with ?path=/orders, and &method=POST if it is not GET, also those of such a
	// request, without rules that use a query or a body. A blocked caller gets 403. Empty means no such path.
	QuotaPath string
	// Logger gets a line when the store becomes unavailable, and when it is available again. Nil means
	// slog.Default().
	Logger *slog.Logger
}

// Limit returns a middleware that takes one unit of limiter for each request, under the result of key, which is
// ClientIP{}.Key if nil. Requests with equal keys share a limit, including those with an empty key. If the store
// does not answer, requests are allowed; a limiter with OnError [sluice.Deny] denies them with status 503.
func Limit(limiter *sluice.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	return Config{}.Limit(limiter, key)
}

// Policy returns a middleware that lets a policy decide.
func Policy(engine *policy.Engine) func(http.Handler) http.Handler {
	return Config{}.Policy(engine)
}

// Limit is [Limit] with settings.
func (c Config) Limit(limiter *sluice.Limiter, key func(*http.Request) string) func(http.Handler) http.Handler {
	if limiter == nil {
		panic("httplimit: Limit needs a limiter: sluice.NewLimiter returns one, or an error")
	}
	if key == nil {
		key = ClientIP{}.Key
	}
	return c.LimitBy(func(r *http.Request) (Choice, error) { return Choice{Limiter: limiter, Key: key(r)}, nil })
}

// Policy is [Policy] with settings.
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
