package grpclimit_test

import (
	"context"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/memory"
)

func open(t *testing.T, ctx context.Context, cc *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, talkMethod)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// exchange sends a message and returns the code of the answer.
func exchange(stream grpc.ClientStream, text string) codes.Code {
	_ = stream.SendMsg(wrapperspb.String(text)) // the stream's error comes from RecvMsg
	return status.Code(stream.RecvMsg(&wrapperspb.StringValue{}))
}

// talkOnce opens a stream, exchanges one message and closes it.
func talkOnce(t *testing.T, cc *grpc.ClientConn) codes.Code {
	t.Helper()
	stream := open(t, t.Context(), cc)
	if code := exchange(stream, "hello"); code != codes.OK {
		return code
	}
	_ = stream.CloseSend()
	if err := stream.RecvMsg(&wrapperspb.StringValue{}); err != io.EOF {
		return status.Code(err)
	}
	return codes.OK
}

// A limiter counts the calls of all services of a server, under the address of the client.
func TestLimit(t *testing.T) {
	t.Parallel()
	limiter, err := sluice.NewLimiter(memory.New(), "calls", sluice.Limit{Count: 2, Period: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	limit := grpclimit.Limit(limiter, nil)
	cc := connect(t, pipes(t, func(server *grpc.Server) {
		healthpb.RegisterHealthServer(server, health.NewServer())
		server.RegisterService(&service, nil)
	}, limit.Options()...))

	if answer, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil || answer.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", answer, err)
	}
	if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.OK || got.header.Get("ratelimit")[0] != `"calls";r=0;t=1800` {
		t.Errorf("%v, %v", got.status, got.header)
	}
	if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.ResourceExhausted {
		t.Errorf("%v", got.status)
	}
	if d, err := limiter.Peek(t.Context(), "192.0.2.1"); err != nil || d.Remaining > 0 {
		t.Errorf("the calls are not counted under the address: %+v, %v", d, err)
	}
}

// With PerMessage, each message of a stream counts.
func TestPerMessage(t *testing.T) {
	t.Parallel()
	rules := `rules: [{name: messages, limit: 3/day}]`
	for perMessage, want := range map[bool][]codes.Code{false: {0, 0, 0, 0, 0}, true: {0, 0, 0, codes.ResourceExhausted, codes.ResourceExhausted}} {
		cc := piped(t, grpclimit.Config{PerMessage: perMessage}.Policy(policytest.Engine(t, rules)))
		stream := open(t, t.Context(), cc)
		for i, code := range want {
			if got := exchange(stream, "hello"); got != code {
				t.Errorf("per message %v: message %d returned %v, want %v", perMessage, i, got, code)
			}
		}
		if pushed := stream.Trailer().Get("grpc-retry-pushback-ms"); perMessage && len(pushed) != 1 {
			t.Errorf("trailers %v", stream.Trailer())
		}
	}
}

// Streams are counted by their outcome, too. A stream counts if its client leaves.
func TestOutcomeOfStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, `rules: [{name: failed, algorithm: fixed_window, limit: 10/day, count: {status: [401]}}]`)))
		if code := talkOnce(t, cc); code != codes.OK {
			t.Fatal(code)
		}
		if code := exchange(open(t, t.Context(), cc), "code 16"); code != codes.Unauthenticated {
			t.Fatal(code)
		}
		ctx, leave := context.WithCancel(t.Context())
		stream := open(t, ctx, cc)
		if exchange(stream, "hello") != codes.OK {
			t.Fatal("the stream does not answer")
		}
		_ = stream.SendMsg(wrapperspb.String("wait"))
		synctest.Wait()
		leave()
		synctest.Wait()
		// The stream that the handler failed, the stream that the client left, and this call count.
		if got := call(t.Context(), cc, sayMethod, "").header.Get("ratelimit")[0]; !strings.Contains(got, "r=7;") {
			t.Errorf("%s, want r=7", got)
		}
	})
}

func waiting(c *grpclimit.Client) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

// The client delays streams before they are opened, and reads the remaining units from their responses.
func TestClientPacesStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var client grpclimit.Client
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, `rules: [{name: calls, limit: 2/10s, algorithm: fixed_window}]`)), waiting(&client)...)
		start := time.Now()
		for range 3 {
			if code := talkOnce(t, cc); code != codes.OK {
				t.Error(code)
			}
		}
		if took := time.Since(start); took < 10*time.Second || took > 11*time.Second {
			t.Errorf("three streams took %v", took)
		}
		// A stream from which nothing is read leaves no state in the client.
		ctx, cancel := context.WithCancel(t.Context())
		_ = open(t, ctx, cc).SendMsg(wrapperspb.String("wait"))
		cancel()
		synctest.Wait()
		if n := client.UnderWay(); n > 0 {
			t.Errorf("%d calls are kept as in flight", n)
		}
	})
}
