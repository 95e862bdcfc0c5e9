package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
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
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/otellimit"
	"github.com/sluicehq/sluice/policy"
)

// tracesURL is where traces are sent: an OTLP/HTTP receiver.
type tracesURL string

func (u *tracesURL) String() string { return string(*u) }
func (u *tracesURL) Type() string   { return "URL" }

func (u *tracesURL) Set(s string) error {
	parsed, err := url.Parse(s)
	switch {
	case s == "":
	case err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "":
		return errors.New("write it as in http://localhost:4318")
	case parsed.User != nil:
		return errors.New("it may not have a user: give what the receiver asks for in OTEL_EXPORTER_OTLP_HEADERS")
	case parsed.RawQuery != "" || parsed.Fragment != "":
		return errors.New("it may have a host and a path, and no query or fragment")
	default:
		if parsed.Path = strings.TrimSuffix(parsed.Path, "/"); !strings.HasSuffix(parsed.Path, "/v1/traces") {
			parsed.Path += "/v1/traces"
		}
		s = parsed.String()
	}
	*u = tracesURL(s)
	return nil
}

// maxSpans is how many spans are made a second: whoever may call can say that their trace is sampled.
// Beyond that, and where the receiver is too slow for the 2048 that wait for it, requests are
// answered as usual, without a span.
const maxSpans = 200

// tracing makes spans of requests whose callers have a sampled trace. A nil one makes none, and
// wraps nothing.
type tracing struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	most     *sluice.Limiter
	trusted  func() httplimit.ClientIP
}

func openTraces(ctx context.Context, to tracesURL, engine *policy.Engine, log *slog.Logger) (*tracing, error) {
	errs := &exporterErrors{log: log}
	otel.SetErrorHandler(errs)
	otel.SetLogger(funcr.New(func(_, args string) { errs.note(args) }, funcr.Options{}))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(string(to)))
	if err != nil {
		return nil, err
	}
	build, _ := debug.ReadBuildInfo()
	about, err := resource.New(ctx,
		resource.WithAttributes(semconv.ServiceName("sluice"), semconv.ServiceVersion(version(build))),
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
	return &tracing{
		provider: provider, tracer: provider.Tracer("github.com/sluicehq/sluice"), most: most,
		trusted: func() httplimit.ClientIP { return httplimit.ClientIP{Trusted: engine.TrustedProxies()} },
	}, nil
}

// close sends what is left.
func (t *tracing) close(by time.Time) {
	ctx, cancel := context.WithDeadline(context.Background(), by)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		otel.Handle(err)
	}
}

// endsBy returns a function that says by when everything has to have ended: when the time for
// draining is over that begins with ctx's end, but not at once.
func (s *serveSettings) endsBy(ctx context.Context) func() time.Time {
	var mu sync.Mutex
	by := time.Now().Add(time.Second)
	context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		by = time.Now().Add(time.Duration(s.drainDelay) + time.Duration(s.drainTimeout))
	})
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		if soonest := time.Now().Add(time.Second); by.Before(soonest) {
			return soonest
		}
		return by
	}
}

// start begins the span of a request whose caller has a sampled trace. It returns nil for all others,
// also where the environment samples fewer.
func (t *tracing) start(ctx context.Context, carrier propagation.TextMapCarrier, name string) (context.Context, trace.Span) {
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

// gateway makes spans of what next serves, and has the upstream's be their children.
func (t *tracing) gateway(next http.Handler) http.Handler { return t.http(next, true) }

// door makes spans of what next serves.
func (t *tracing) door(next http.Handler) http.Handler { return t.http(next, false) }

const traceparent = "Traceparent"

func (t *tracing) http(next http.Handler, passOn bool) http.Handler {
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
		span.SetAttributes(t.describe(r, method, known)...)
		if c := span.SpanContext(); passOn {
			r.Header[traceparent] = []string{"00-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()}
		}
		answered := &traced{ResponseWriter: w}
		returned := false
		defer func() { end(span, answered.status, returned) }()
		next.ServeHTTP(answered, r.WithContext(ctx))
		returned = true
	})
}

// methodName returns a method as the name of a span has it, and whether it is one that is known.
func methodName(method string) (name string, known bool) {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace, "QUERY":
		return method, true
	}
	return "HTTP", false
}

// describe returns the attributes of a request. Its query may have secrets in it.
func (t *tracing) describe(r *http.Request, method string, known bool) []attribute.KeyValue {
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

// end ends the span of an HTTP request. A handler that has panicked has cut the connection.
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

// traced notes the status of a response.
type traced struct {
	http.ResponseWriter
	status int
}

func (t *traced) WriteHeader(status int) {
	if t.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (t *traced) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// grpc returns what makes spans of calls.
func (t *tracing) grpc() []grpc.ServerOption {
	if t == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(t.unary), grpc.ChainStreamInterceptor(t.stream)}
}

func (t *tracing) unary(ctx context.Context, in any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (out any, err error) {
	ctx, span := t.startCall(ctx, info.FullMethod)
	if span == nil {
		return handler(ctx, in)
	}
	defer func() { endCall(span, err) }()
	return handler(ctx, in)
}

func (t *tracing) stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx, span := t.startCall(stream.Context(), info.FullMethod)
	if span == nil {
		return handler(srv, stream)
	}
	defer func() { endCall(span, err) }()
	return handler(srv, &tracedStream{stream, ctx})
}

// startCall begins the span of a call to one of our services: no others get here.
func (t *tracing) startCall(ctx context.Context, method string) (context.Context, trace.Span) {
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
	name := grpcCodeName(code)
	span.SetAttributes(semconv.RPCResponseStatusCode(name))
	switch code {
	case grpccodes.Unknown, grpccodes.DeadlineExceeded, grpccodes.Unimplemented, grpccodes.Internal, grpccodes.Unavailable, grpccodes.DataLoss:
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(name))
	}
	span.End()
}

// grpcCodeName returns a code as gRPC writes it, such as RESOURCE_EXHAUSTED.
func grpcCodeName(code grpccodes.Code) string {
	switch code {
	case grpccodes.OK:
		return "OK"
	case grpccodes.Canceled:
		return "CANCELLED"
	}
	var name []byte
	for i, c := range []byte(code.String()) {
		if i > 0 && 'A' <= c && c <= 'Z' {
			name = append(name, '_')
		}
		name = append(name, c)
	}
	return strings.ToUpper(string(name))
}

// tracedStream is a stream with the span in its context.
type tracedStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *tracedStream) Context() context.Context { return s.ctx }

// exporterErrors logs what the exporter complains about: one line at once, and then one a minute.
type exporterErrors struct {
	log    *slog.Logger
	mu     sync.Mutex
	next   time.Time
	others int
}

// Handle is that of [otel.ErrorHandler].
func (e *exporterErrors) Handle(err error) { e.note(err.Error()) }

func (e *exporterErrors) note(text string) {
	e.mu.Lock()
	now, others := time.Now(), e.others
	due := !now.Before(e.next)
	if e.others++; due {
		e.next, e.others = now.Add(time.Minute), 0
	}
	e.mu.Unlock()
	if due {
		e.log.Warn("traces cannot be sent", "error", printable.Text(text, 500), "others_before", others)
	}
}
