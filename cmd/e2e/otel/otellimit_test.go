// Package otel tests otellimit with the SDK of OpenTelemetry, in HTTP and gRPC servers.
package otel

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/grpc"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/otellimit"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func engine(t testing.TB, rules string) *policy.Engine {
	t.Helper()
	p, err := policyfile.Parse("policy.yaml", []byte("version: 1\nrules:\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	e := policy.NewEngine(memory.New(), p)
	otellimit.Observe(e)
	return e
}

func recorder(t testing.TB) (*tracetest.InMemoryExporter, *trace.TracerProvider) {
	exporter := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(exporter))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	return exporter, provider
}

// events returns the attributes of all decisions in the spans, as text.
func events(exporter *tracetest.InMemoryExporter) (all []string) {
	for _, span := range exporter.GetSpans() {
		for _, event := range span.Events {
			if event.Name != otellimit.Event {
				continue
			}
			var texts []string
			for _, a := range event.Attributes {
				value := a.Value.String()
				if a.Value.Type() == attribute.STRINGSLICE {
					value = strings.Join(a.Value.AsStringSlice(), ",")
				}
				texts = append(texts, strings.TrimPrefix(string(a.Key), "sluice.")+"="+value)
			}
			all = append(all, strings.Join(texts, " "))
		}
	}
	return all
}

const layered = `
- {name: api, limits: [2/day, 100/month], key: [client_ip]}
- {name: watched, limit: 1/day, shadow: true}
- {name: wide, limit: 1000/day}`

// The middleware records its decisions in the spans of OpenTelemetry's HTTP instrumentation.
func TestHTTP(t *testing.T) {
	t.Parallel()
	exporter, provider := recorder(t)
	h := otelhttp.NewHandler(httplimit.Policy(engine(t, layered))(http.NotFoundHandler()), "api", otelhttp.WithTracerProvider(provider))
	for range 3 {
		r := httptest.NewRequest("GET", "/orders", nil)
		r.RemoteAddr = "192.0.2.7:1000"
		h.ServeHTTP(httptest.NewRecorder(), r)
	}
	want := []string{
		"outcome=allow door=http degraded=false limit=api-1d remaining=1 subject=192.0.2.7",
		"outcome=would_deny door=http degraded=false would_be_refused_by=watched limit=api-1d remaining=0 because=limit subject=everybody",
		"outcome=deny door=http degraded=false refused_by=api would_be_refused_by=watched limit=api-1d remaining=0 because=limit subject=192.0.2.7 retry_after=",
	}
	got := events(exporter)
	if len(got) != len(want) {
		t.Fatalf("%d events: %q", len(got), got)
	}
	for i := range want {
		if !strings.HasPrefix(got[i], want[i]) || i < 2 && got[i] != want[i] {
			t.Errorf("request %d:\n%s\nwant\n%s", i, got[i], want[i])
		}
	}
}

func TestGRPC(t *testing.T) {
	t.Parallel()
	exporter, provider := recorder(t)
	server := grpclimit.Policy(engine(t, "- {name: r, limit: 1/day, key: [attr:none]}"))
	for range 2 {
		ctx, span := provider.Tracer("test").Start(t.Context(), "call")
		_, _ = server.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}, func(context.Context, any) (any, error) { return nil, nil })
		span.End()
	}
	if got := events(exporter); len(got) != 2 || !strings.HasPrefix(got[0], "outcome=allow door=grpc_server ") || !strings.HasPrefix(got[1], "outcome=deny door=grpc_server degraded=false refused_by=r ") {
		t.Errorf("%q", got)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rules, want string }{
		{"- {name: r, clients: [192.0.2.0/24], block: true}", "outcome=deny degraded=false refused_by=r because=block"},
		{"- {name: r, limit: 9/day, key: [api_key], missing: refuse}", "outcome=deny degraded=false because=malformed missing=api_key"},
		{"- {name: r, limit: 9/day, key: [api_key], missing: refuse, shadow: true}", "outcome=would_deny degraded=false because=malformed missing=api_key"},
		{"- {name: b, block: true, shadow: true}\n- {name: r, limit: 9/day, key: [api_key], missing: refuse}",
			"outcome=deny degraded=false would_be_refused_by=b because=malformed missing=api_key"},
		{"- {name: r, exempt: true}", "outcome=allow degraded=false"},
		{"- {name: r, limit: 1/second, algorithm: leaky_bucket, key: [client_ip]}", "outcome=allow degraded=false limit=r remaining="},
	} {
		exporter, provider := recorder(t)
		ctx, span := provider.Tracer("test").Start(t.Context(), "call")
		engine(t, c.rules).Decide(ctx, &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{}})
		span.End()
		if got := events(exporter); len(got) != 1 || !strings.HasPrefix(got[0], c.want) || strings.HasSuffix(c.want, "block") && got[0] != c.want {
			t.Errorf("%s: %q, want %q", c.rules, got, c.want)
		}
	}
}

// Without a span, or with a span that is not recorded, a decision allocates nothing.
func TestCost(t *testing.T) {
	e := engine(t, layered)
	provider := trace.NewTracerProvider(trace.WithSampler(trace.NeverSample()))
	unsampled, span := provider.Tracer("test").Start(t.Context(), "call")
	defer span.End()
	r := &policy.Request{Path: "/", Peer: netip.MustParseAddr("192.0.2.7"), Header: http.Header{}}
	var d policy.Decision
	for name, ctx := range map[string]context.Context{"no span": t.Context(), "not sampled": unsampled} {
		e.DecideInto(ctx, r, &d)
		if n := testkit.Allocations(func() { e.DecideInto(ctx, r, &d) }); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
