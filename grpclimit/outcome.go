package grpclimit

import (
	"cmp"
	"context"
	"net/http"
	"net/textproto"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluicehq/sluice/policy"
)

// Settle sets the Verdict, the Cost and the Status of a call's outcome, for the rules that depend on the outcome. If
// one of these fields is zero, its value comes from the response. Header and Bytes always come from the response. ctx
// is the context of the call. Without rules that depend on the outcome, Settle does nothing.
func Settle(ctx context.Context, o policy.Outcome) {
	if all, _ := ctx.Value(outcomeKey{}).(*outcome); all != nil {
		all.mu.Lock()
		defer all.mu.Unlock()
		all.override = o
	}
}

type outcomeKey struct{}

// outcome is the outcome of a call so far. It is locked because handlers may set metadata from any goroutine.
type outcome struct {
	// The stream of the call. Functions that set metadata by a context, such as grpc.SetHeader, call the stream
	// through the outcome.
	grpc.ServerTransportStream

	mu       sync.Mutex
	status   int // status of HTTP; 0 if unknown
	header   http.Header
	bytes    int64 // bytes of all messages; negative if the size of a message was unknown
	override policy.Outcome
}

func newOutcome(ctx context.Context) *outcome {
	return &outcome{ServerTransportStream: grpc.ServerTransportStreamFromContext(ctx), header: http.Header{}}
}

// context returns the context for the handler.
func (o *outcome) context(ctx context.Context) context.Context {
	ctx = context.WithValue(ctx, outcomeKey{}, o)
	if o.ServerTransportStream == nil {
		return ctx
	}
	return grpc.NewContextWithServerTransportStream(ctx, o)
}

func (o *outcome) SetHeader(md metadata.MD) error {
	o.note(md)
	return o.ServerTransportStream.SetHeader(md)
}

func (o *outcome) SendHeader(md metadata.MD) error {
	o.note(md)
	return o.ServerTransportStream.SendHeader(md)
}

func (o *outcome) SetTrailer(md metadata.MD) error {
	o.note(md)
	return o.ServerTransportStream.SetTrailer(md)
}

func (o *outcome) note(md metadata.MD) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for name, values := range md {
		name = textproto.CanonicalMIMEHeaderKey(name)
		o.header[name] = append(o.header[name], values...)
	}
}

// sent adds the bytes of a sent message.
func (o *outcome) sent(message any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch m, ok := message.(proto.Message); {
	case message == nil || o.bytes < 0:
	case ok:
		o.bytes += int64(proto.Size(m))
	default:
		o.bytes = -1
	}
}

// end records the result of the handler. It is not called if the handler has panicked.
func (o *outcome) end(err error) {
	s, ok := status.FromError(err)
	if !ok {
		s = status.FromContextError(err) // as the server does
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.status = httpStatus(s.Code())
}

// final returns the outcome. If the call failed after its client had left, the status is unknown, because the client
// has not received it.
func (o *outcome) final(ctx context.Context) policy.Outcome {
	o.mu.Lock()
	defer o.mu.Unlock()
	answered := o.status
	if ctx.Err() != nil && answered != http.StatusOK {
		answered = 0
	}
	return policy.Outcome{
		Status: cmp.Or(o.override.Status, answered), Header: o.header, Bytes: o.bytes, Numbers: o.override.Numbers,
		Verdict: o.override.Verdict, Cost: o.override.Cost,
	}
}

// watched is a stream that records metadata and messages in an outcome.
type watched struct {
	grpc.ServerStream
	outcome *outcome
	ctx     context.Context
}

func (w *watched) Context() context.Context { return w.ctx }

func (w *watched) SetHeader(md metadata.MD) error {
	w.outcome.note(md)
	return w.ServerStream.SetHeader(md)
}

func (w *watched) SendHeader(md metadata.MD) error {
	w.outcome.note(md)
	return w.ServerStream.SendHeader(md)
}

func (w *watched) SetTrailer(md metadata.MD) {
	w.outcome.note(md)
	w.ServerStream.SetTrailer(md)
}

func (w *watched) SendMsg(message any) error {
	err := w.ServerStream.SendMsg(message)
	if err == nil {
		w.outcome.sent(message)
	}
	return err
}

// httpStatus returns the HTTP status to which gateways from HTTP to gRPC map a code.
func httpStatus(c codes.Code) int {
	switch c {
	case codes.OK:
		return http.StatusOK
	case codes.Canceled:
		return 499
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		return http.StatusBadRequest
	case codes.Unauthenticated:
		return http.StatusUnauthorized
	case codes.PermissionDenied:
		return http.StatusForbidden
	case codes.NotFound:
		return http.StatusNotFound
	case codes.AlreadyExists, codes.Aborted:
		return http.StatusConflict
	case codes.ResourceExhausted:
		return http.StatusTooManyRequests
	case codes.Unimplemented:
		return http.StatusNotImplemented
	case codes.Unavailable:
		return http.StatusServiceUnavailable
	case codes.DeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}
