package e2e

import (
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/sluicehq/sluice/cmd/internal/door/checkgrpc"
	"github.com/sluicehq/sluice/internal/testkit"
)

// otlp is a server that receives traces.
type otlp struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*tracepb.Span
	resource []*common.KeyValue
	field    string // the X-Tenant of the last request
	failing  bool
}

func receiver(t *testing.T) *otlp {
	o := &otlp{}
	o.Server = httptest.NewServer(o)
	t.Cleanup(o.Close)
	return o
}

func (o *otlp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		body, _ = gzip.NewReader(r.Body)
	}
	data, err := io.ReadAll(body)
	var in collector.ExportTraceServiceRequest
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil || r.URL.Path != "/v1/traces" || proto.Unmarshal(data, &in) != nil || o.failing {
		http.Error(w, "no\x1b[2J", http.StatusBadRequest)
		return
	}
	o.field = r.Header.Get("X-Tenant")
	for _, group := range in.ResourceSpans {
		o.resource = group.Resource.Attributes
		for _, scope := range group.ScopeSpans {
			o.spans = append(o.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// all returns the received spans, in the order of their start times.
func (o *otlp) all() []*tracepb.Span {
	o.mu.Lock()
	defer o.mu.Unlock()
	slices.SortFunc(o.spans, func(a, b *tracepb.Span) int { return int(a.StartTimeUnixNano) - int(b.StartTimeUnixNano) })
	return o.spans
}

func attribute(all []*common.KeyValue, name string) string {
	for _, a := range all {
		if a.Key != name {
			continue
		}
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_StringValue:
			return v.StringValue
		case *common.AnyValue_IntValue:
			return fmt.Sprint(v.IntValue)
		case *common.AnyValue_ArrayValue:
			var texts []string
			for _, one := range v.ArrayValue.Values {
				texts = append(texts, one.GetStringValue())
			}
			return strings.Join(texts, ",")
		}
	}
	return ""
}

const (
	callerTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	callerSpan   = "00f067aa0ba902b7"
	callerParent = "00-" + callerTrace + "-" + callerSpan + "-01"
)

// Traces of callers continue through the gateway, auth requests and gRPC, and to the upstream.
func TestTraces(t *testing.T) {
	t.Parallel()
	to := receiver(t)
	var mu sync.Mutex
	var passed []string
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		passed = append(passed, strings.Join(r.Header["Traceparent"], ",")+" "+r.Header.Get("Tracestate"))
	}))
	t.Cleanup(upstream.Close)
	policy := testkit.File(t, "policy.yaml", "version: 1\nrules:\n  - {name: api, limit: 3/day, key: [client_ip], match: /api}\n")
	g := testkit.StartWith(t, func(c *exec.Cmd) {
		c.Env = append(c.Env, "OTEL_SERVICE_NAME=edge", "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test", "OTEL_EXPORTER_OTLP_HEADERS=X-Tenant=ours")
	}, nil, "--policy", policy, "--upstream", upstream.URL, "--traces", to.URL, "--check", "127.0.0.1:0", "--auth", "caddy", "--grpc", "127.0.0.1:0")
	g.AwaitStatus(g.Admin+"/readyz", http.StatusOK)
	ask := func(url string, fields ...string) int {
		t.Helper()
		resp, _ := do(t, request(t, "GET", url, "", fields...))
		return resp.StatusCode
	}
	const unsampled = "00-" + callerTrace + "-" + callerSpan + "-00"
	ask(g.URL+"/api?secret=x", "Traceparent", callerParent, "Tracestate", "a=b")
	ask(g.URL+"/api", "Traceparent", unsampled)
	ask(g.URL + "/api")
	ask(g.URL+"/other", "Traceparent", "00-nonsense", "Tracestate", "a=b")
	ask(g.URL+"/other", "Traceparent", callerParent, "Traceparent", callerParent)
	if got := ask(g.URL+"/api", "Traceparent", callerParent, "X-Request-Id", "r-9"); got != http.StatusTooManyRequests {
		t.Fatalf("the fourth: %d", got)
	}
	auth := ask("http://"+g.Check+"/auth/caddy", "Traceparent", callerParent, "X-Forwarded-Method", "GET", "X-Forwarded-Uri", "/api", "X-Forwarded-Host", "h", "X-Forwarded-For", "127.0.0.1")
	if auth != http.StatusTooManyRequests {
		t.Errorf("Caddy gets %d", auth)
	}
	resp, err := http.Post("http://"+g.Check+"/v1/check", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	conn, err := grpc.NewClient(g.Grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", callerParent)
	about := &checkgrpc.CheckRequest{About: &checkgrpc.CheckRequest_Request{Request: &checkgrpc.HttpRequest{Method: "GET", Path: "/api", Client: "127.0.0.1"}}}
	if out, err := checkgrpc.NewChecksClient(conn).Check(ctx, about); err != nil || out.Allowed {
		t.Errorf("gRPC: %v %v", out, err)
	}
	g.Stop() // sends the remaining spans

	spans := to.all()
	var got []string
	for _, s := range spans {
		if hex.EncodeToString(s.TraceId) != callerTrace || hex.EncodeToString(s.ParentSpanId) != callerSpan || s.Kind != tracepb.Span_SPAN_KIND_SERVER {
			t.Errorf("span %v is not a child of the caller's span", s)
		}
		text := s.Name + " " + attribute(s.Attributes, "url.path") + " " + attribute(s.Attributes, "http.response.status_code") + attribute(s.Attributes, "rpc.response.status_code")
		for _, e := range s.Events {
			text += " " + e.Name + " " + attribute(e.Attributes, "sluice.door") + " " + attribute(e.Attributes, "sluice.outcome") + " " + attribute(e.Attributes, "sluice.refused_by") + " " + attribute(e.Attributes, "sluice.remaining") + " " + attribute(e.Attributes, "sluice.subject")
		}
		got = append(got, text)
	}
	want := []string{
		"GET /api 200 sluice.decision gateway allow  2 127.0.0.1",
		"GET /api 429 sluice.decision gateway deny api 0 127.0.0.1",
		"GET /auth/caddy 429 sluice.decision auth deny api 0 127.0.0.1",
		"sluice.v1.Checks/Check  OK sluice.decision grpc deny api 0 127.0.0.1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("spans:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if attribute(to.resource, "service.name") != "edge" || attribute(to.resource, "deployment.environment.name") != "test" || attribute(to.resource, "service.version") == "" || to.field != "ours" {
		t.Errorf("the resource is %v, the header %q", to.resource, to.field)
	}
	if len(spans) > 0 {
		child := "00-" + callerTrace + "-" + hex.EncodeToString(spans[0].SpanId) + "-01 a=b"
		if want := []string{child, unsampled + " ", " ", "00-nonsense a=b", callerParent + "," + callerParent + " "}; !slices.Equal(passed, want) {
			t.Errorf("the upstream got %q, want %q", passed, want)
		}
	}

	// The lines of denials in the log contain a trace ID.
	var refused int
	for text := range strings.Lines(g.Logged()) {
		var one map[string]any
		if json.Unmarshal([]byte(text), &one) == nil && one["msg"] == "denied" {
			refused++
			if one["trace_id"] == nil && one["door"] != "grpc" || one["rule"] != "api" || one["subject"] != "127.0.0.1" {
				t.Errorf("%s", text)
			}
			if one["door"] == "gateway" && one["request_id"] != "r-9" {
				t.Errorf("%s", text)
			}
		}
	}
	if refused != 3 {
		t.Errorf("%d denials are logged, want 3:\n%s", refused, g.Logged())
	}
}

// If a receiver rejects the traces, the log reports this in one line, which is printable, and requests are still
// answered.
func TestTracesRefused(t *testing.T) {
	t.Parallel()
	to := receiver(t)
	to.failing = true
	g := serve(t, "--upstream", "sample", "--traces", to.URL)
	for range 100 {
		do(t, request(t, "GET", g.URL, "", "Traceparent", callerParent))
	}
	testkit.Await(t, "the log reports the rejected traces", func() bool { return strings.Contains(g.Logged(), "traces cannot be sent") })
	g.Stop()
	if n := strings.Count(g.Logged(), "traces cannot be sent"); n != 1 || strings.Contains(g.Logged(), "\\u001b") {
		t.Errorf("%d lines: %s", n, g.Logged())
	}
}
