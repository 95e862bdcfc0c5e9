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
	// Authorize returns nil if the caller with this address and token has permission. A missing token is "". Its
	// error may have a method RetrySeconds, which returns the time to wait. If Authorize is nil, all callers have
	// permission.
	Authorize     func(from, token string) error
	DegradedField bool // see [answer.Encoder]
	// Logger is slog.Default() if it is nil, but only for the packages checkapi and checkgrpc. The packages
	// authrequest, resp and spoe need one.
	Logger *slog.Logger
}

// Bounds for checks.
const (
	MaxChecks = 1000    // checks in a batch
	MaxFields = 256     // fields in a request's head, attributes, or parts of a key
	MaxID     = 256     // bytes
	MaxUnits  = 1 << 50 // units; larger than any limit
)

// Base makes the answers of an integration.
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

// Rescue, if deferred, turns a panic in a gRPC call into an error. grpc-go does not recover panics, so the panic
// would end the process.
func Rescue(log *slog.Logger, err *error) {
	if p := recover(); p != nil {
		cmp.Or(log, slog.Default()).Error("answering a call failed: this is a bug", "panic", p, "stack", string(debug.Stack()))
		*err = errInternal
	}
}

// Answer sets a to the answer to a request, and sets the answer's header fields in h. If fault is not empty, the
// request is malformed, and the answer denies it. Otherwise the answer follows from d. The last parameter has the
// header fields of the request.
func (b *Base) Answer(a *answer.Answer, h http.Header, d *policy.Decision, fault string, request http.Header) {
	p := b.Engine.Policy()
	client := answer.Client{Header: request, Fields: p.Fields(), CORS: p.CORS(), Answers: p.Answers()}
	if fault != "" {
		b.encoder.Malformed(a, h, fault, client)
		return
	}
	b.outage.Note(d)
	b.encoder.Encode(a, h, d, client)
}

// FieldNames appends the sorted names of the fields that an integration passes on. It omits Content-Length, because
// the program that sends the body sets that field.
func FieldNames(names []string, h http.Header) []string {
	for name := range h {
		if name != "Content-Length" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
