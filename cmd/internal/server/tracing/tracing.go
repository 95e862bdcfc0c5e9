// Package tracing makes spans of requests and sends them to an OTLP/HTTP receiver. Package server wraps its
// handlers with a [Tracer].
package tracing

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	rpccode "google.golang.org/genproto/googleapis/rpc/code"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/exchange"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/otellimit"
	"github.com/sluicehq/sluice/policy"
)

// URL is a flag with the address of an OTLP/HTTP receiver. It is empty if tracing is off.
type URL string

func (u *URL) String() string { return string(*u) }
func (u *URL) Type() string   { return "URL" }

func (u *URL) Set(s string) error {
	parsed, err := url.Parse(s)
	switch {
	case s == "":
	case err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "":
		return errors.New("write it as in http://localhost:4318")
	case parsed.User != nil:
		return errors.New("a user is not allowed: set credentials in OTEL_EXPORTER_OTLP_HEADERS")
	case parsed.RawQuery != "" || parsed.Fragment != "":
		return errors.New("a query or fragment is not allowed: write only a host and a path")
	default:
		if parsed.Path = strings.TrimSuffix(parsed.Path, "/"); !strings.HasSuffix(parsed.Path, "/v1/traces") {
			parsed.Path += "/v1/traces"
		}
		s = parsed.String()
	}
	*u = URL(s)
	return nil
}

// maxSpans bounds the spans of requests per second, because any caller can claim that its trace is sampled. Further
// requests have no span. Spans that end while the queue to the receiver is full, by default with 2048 spans, are
// dropped.
const maxSpans = 200

// Tracer makes spans of requests that are part of a sampled trace. A nil Tracer makes no spans, and returns
// handlers unchanged.
type Tracer struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	most     *sluice.Limiter
	trusted  func() httplimit.ClientIP
}

// Open returns a Tracer that sends spans of requests and of the engine to a receiver. version is the version of the
// program.
func Open(ctx context.Context, to URL, engine *policy.Engine, version string, log *slog.Logger) (*Tracer, error) {
	some, err := sluice.NewLimiter(memory.New(), "errors", sluice.Limit{Count: 1, Period: time.Minute})
	if err != nil {
		return nil, err
	}
	errs := &exporterErrors{log, some}
	otel.SetErrorHandler(errs)
	otel.SetLogger(funcr.New(func(_, args string) { errs.note(args) }, funcr.Options{}))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(string(to)))
	if err != nil {
		return nil, err
	}
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("sluice"), semconv.ServiceVersion(version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, err
	}
	most, err := sluice.NewLimiter(memory.New(), "traces", sluice.Limit{Count: maxSpans, Period: time.Second})
	if err != nil {
		return nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	otellimit.Observe(engine)
	return &Tracer{
		provider: provider, tracer: provider.Tracer("github.com/sluicehq/sluice"), most: most,
		trusted: func() httplimit.ClientIP { return httplimit.ClientIP{Trusted: engine.TrustedProxies()} },
	}, nil
}

// Close sends the remaining spans. It gives up at the deadline.
func (t *Tracer) Close(deadline time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// start starts the span of a request that is part of a sampled trace. The span is nil for other requests,
// for those beyond maxSpans, and for those that OTEL_ variables of the environment exclude from sampling.
func (t *Tracer) start(ctx context.Context, carrier propagation.TextMapCarrier, name string) (context.Context, trace.Span) {
	remote := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if !remote.IsSampled() {
		return ctx, nil
	}
	if d, err := t.most.Take(ctx, "", 1); err != nil || !d.Allowed {
		return ctx, nil
	}
	ctx, span := t.tracer.Start(trace.ContextWithRemoteSpanContext(ctx, remote), name, trace.WithSpanKind(trace.SpanKindServer))
	if !span.IsRecording() {
		return ctx, nil
	}
	return ctx, span
}

// Gateway returns a handler that makes spans of the requests to next. The spans are the parents of the upstream's
// spans.
func (t *Tracer) Gateway(next http.Handler) http.Handler { return t.http(next, true) }

// Integration returns a handler that makes spans of the requests to next.
func (t *Tracer) Integration(next http.Handler) http.Handler { return t.http(next, false) }

const traceparent = "Traceparent"

func (t *Tracer) http(next http.Handler, passOn bool) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header[traceparent]) != 1 {
			next.ServeHTTP(w, r)
			return
		}
		method, known := methodName(r.Method)
		ctx, span := t.start(r.Context(), propagation.HeaderCarrier(r.Header), method)
		if span == nil {
			next.ServeHTTP(w, r)
			return
		}
		span.SetAttributes(t.attributes(r, method, known)...)
		if c := span.SpanContext(); passOn {
			r.Header[traceparent] = []string{"00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()}
		}
		s := new(answered)
		returned := false
		defer func() { end(span, s.status, returned) }()
		r = r.WithContext(ctx)
		next.ServeHTTP(exchange.Join(w, r, &s.own, s), r)
		returned = true
	})
}

// methodName returns the name of the span for a method. It returns false for an unknown method.
func methodName(method string) (name string, known bool) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return method, true
	}
	return "HTTP", false
}

// attributes returns the attributes of a request, without the query, which may contain secrets.
func (t *Tracer) attributes(r *http.Request, method string, known bool) []attribute.KeyValue {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	version := strconv.Itoa(r.ProtoMajor)
	if r.ProtoMajor == 1 {
		version = fmt.Sprintf("1.%d", r.ProtoMinor)
	}
	all := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(method), semconv.URLScheme(scheme), semconv.NetworkProtocolVersion(version),
		semconv.URLPath(printable.Text(r.URL.EscapedPath(), 256)), semconv.ServerAddress(printable.Text(r.Host, 128)),
	}
	if !known {
		all[0] = semconv.HTTPRequestMethodOther
		all = append(all, semconv.HTTPRequestMethodOriginal(printable.Text(r.Method, 32)))
	}
	if client := t.trusted().Addr(r); client.IsValid() {
		all = append(all, semconv.ClientAddress(client.String()))
	}
	return all
}

// end ends the span of an HTTP request. The parameter returned is true if the handler has returned. If not, it
// panicked, and the connection was cut.
func end(span trace.Span, code int, returned bool) {
	switch {
	case !returned:
		span.SetStatus(codes.Error, "the response broke off")
		span.SetAttributes(semconv.ErrorTypeKey.String("_OTHER"))
	case code == 0:
		code = http.StatusOK
	}
	if code > 0 {
		span.SetAttributes(semconv.HTTPResponseStatusCode(code))
	}
	if code >= 500 && returned {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(code)))
	}
	span.End()
}

// answered records the status of a response.
type answered struct {
	own    exchange.Exchange
	status int
}

// Head records the status of the final response.
func (a *answered) Head(status int) int {
	if exchange.Final(status) {
		a.status = status
	}
	return status
}

// GRPC returns options for a gRPC server that make spans of its calls.
func (t *Tracer) GRPC() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(t.unary), grpc.ChainStreamInterceptor(t.stream)}
}

func (t *Tracer) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	ctx, span := t.startCall(ctx, info.FullMethod)
	if span == nil {
		return handler(ctx, in)
	}
	defer func() { endCall(span, err) }()
	return handler(ctx, in)
}

func (t *Tracer) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx, span := t.startCall(stream.Context(), info.FullMethod)
	if span == nil {
		return handler(srv, stream)
	}
	defer func() { endCall(span, err) }()
	return handler(srv, &tracedStream{stream, ctx})
}

// startCall starts the span of a gRPC call. The method is one of the server's own, because calls of unknown methods
// do not reach interceptors.
func (t *Tracer) startCall(ctx context.Context, method string) (context.Context, trace.Span) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(traceparent)
	if len(values) != 1 {
		return ctx, nil
	}
	carrier := propagation.MapCarrier{"traceparent": values[0], "tracestate": strings.Join(md.Get("tracestate"), ",")}
	method = strings.TrimPrefix(method, "/")
	ctx, span := t.start(ctx, carrier, method)
	if span != nil {
		span.SetAttributes(semconv.RPCSystemNameGRPC, semconv.RPCMethod(method))
	}
	return ctx, span
}

func endCall(span trace.Span, err error) {
	code := status.Code(err)
	name := rpccode.Code(code).String()
	span.SetAttributes(semconv.RPCResponseStatusCode(name))
	switch code {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(name))
	}
	span.End()
}

// tracedStream is a stream with the span in its context.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *tracedStream) Context() context.Context { return s.ctx }

// exporterErrors logs errors of the exporter, at most one per minute.
type exporterErrors struct {
	log  *slog.Logger
	most *sluice.Limiter
}

// Handle implements [otel.ErrorHandler].
func (e *exporterErrors) Handle(err error) { e.note(err.Error()) }

func (e *exporterErrors) note(text string) {
	if d, err := e.most.Take(context.Background(), "", 1); err == nil && d.Allowed {
		e.log.Warn("traces cannot be sent", "error", printable.Text(text, 500))
	}
}
