package door

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

// Config configures the decisions and answers of an integration.
type Config struct {
	Engine *policy.Engine
	// Authorize returns an error unless a caller with this address and token has permission; the token is empty if
	// missing. Nil permits all callers. The method RetrySeconds of an error, if any, returns when to retry.
	Authorize     func(from, token string) error
	DegradedField bool         // see [answer.Encoder]
	Logger        *slog.Logger // slog.Default() if nil
}

// Bounds of a check.
const (
	MaxChecks = 1000    // checks in a batch
	MaxFields = 256     // fields in a request's head, attributes, or parts of a key
	MaxID     = 256     // bytes
	MaxUnits  = 1 << 50 // larger than any limit
)

// Base makes answers by a Config.
type Base struct {
	Config
	encoder answer.Encoder
	outage  answer.Outage
}

// New returns a base, which is safe for concurrent use.
func New(c Config) *Base {
	return &Base{Config: c, encoder: answer.Encoder{DegradedField: c.DegradedField}, outage: answer.Outage{Logger: c.Logger}}
}

var errInternal = status.Error(codes.Internal, "sluice: the request could not be decided: see the log of the limiter")

// Rescue, if deferred, turns a panic in a gRPC call into an error. Otherwise grpc-go would let the panic end the
// process.
func Rescue(log *slog.Logger, err *error) {
	if p := recover(); p != nil {
		cmp.Or(log, slog.Default()).Error("answering a call failed: this is a bug", "panic", p, "stack", string(debug.Stack()))
		*err = errInternal
	}
}

// Answer turns a into the answer to a request, and sets its fields in h: a denial if the request has a fault, else
// the answer to d. asked are the fields of the request.
func (b *Base) Answer(a *answer.Answer, h http.Header, d *policy.Decision, fault string, asked http.Header) {
	p := b.Engine.Policy()
	client := answer.Client{Header: asked, Fields: p.Fields(), CORS: p.CORS(), Answers: p.Answers()}
	if fault != "" {
		b.encoder.Malformed(a, h, fault, client)
		return
	}
	b.outage.Note(d)
	b.encoder.Encode(a, h, d, client)
}

// FieldNames appends the names of the fields that an integration passes on, sorted. It leaves out Content-Length,
// which the sender of the body sets.
func FieldNames(names []string, h http.Header) []string {
	for name := range h {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
