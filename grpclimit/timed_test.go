package grpclimit_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
)

const thinks = 300 * time.Millisecond

// The measured latency of a call is the time from its last message to the first message of the response. No permit is
// taken after the call.
func TestLatency(t *testing.T) {
	t.Parallel()
	leave := func(ctx context.Context, cc *grpc.ClientConn) {
		ctx, cancel := context.WithTimeout(ctx, thinks)
		defer cancel()
		call(ctx, cc, sayMethod, "wait")
	}
	for _, tt := range []struct {
		name    string
		call    func(ctx context.Context, cc *grpc.ClientConn)
		unknown bool // no latency is measured
	}{
		{name: "unary", call: func(ctx context.Context, cc *grpc.ClientConn) { call(ctx, cc, sayMethod, "think 300ms") }},
		{name: "an error", call: func(ctx context.Context, cc *grpc.ClientConn) {
			time.Sleep(thinks)
			call(ctx, cc, sayMethod, "code 14") // a fast failure: UNAVAILABLE
		}, unknown: true},
		{name: "a panic", call: func(ctx context.Context, cc *grpc.ClientConn) {
			call(ctx, cc, sayMethod, "think 300ms panic")
		}, unknown: true},
		{name: "a client that leaves", call: leave, unknown: true},
		{name: "a stream with a slow client", call: func(ctx context.Context, cc *grpc.ClientConn) {
			stream := open(t, ctx, cc)
			time.Sleep(2 * time.Second)
			for range 3 { // the first answer is the head of the response
				exchange(stream, "think 300ms")
			}
			_ = stream.CloseSend()
			_ = stream.RecvMsg(new(wrapperspb.StringValue))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e := policytest.Engine(t, "rules: [{name: capacity, in_flight: auto}]")
				cc := piped(t, grpclimit.Policy(e))
				for range 15 {
					tt.call(t.Context(), cc)
					synctest.Wait()
					if n := policytest.Load(t, e).InFlight; n != 0 {
						t.Fatalf("%d in flight at the end", n)
					}
				}
				if got := policytest.Load(t, e).Latency; tt.unknown && got != 0 || !tt.unknown && (got < thinks*9/10 || got > thinks*11/10) {
					t.Errorf("the latency is %v", got)
				}
			})
		})
	}
}

// A call beyond the limit fails with UNAVAILABLE and a random wait.
func TestOverloaded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := policytest.Engine(t, `
rules:
  - {name: capacity, in_flight: {auto: true, least: 1, most: 1}}
  - {name: rate, limit: 2/day}`)
		cc := piped(t, grpclimit.Policy(e))
		stream := open(t, t.Context(), cc)
		synctest.Wait() // its handler waits for a message
		waits := make(map[string]bool)
		for range 20 {
			a := call(t.Context(), cc, sayMethod, "hello")
			wait := strings.Join(a.trailer.Get("grpc-retry-pushback-ms"), ",")
			waits[wait] = true
			info := errors.New("no RetryInfo")
			for _, d := range a.status.Details() {
				if r, ok := d.(*errdetails.RetryInfo); ok && r.RetryDelay.AsDuration() >= time.Second/2 {
					info = nil
				}
			}
			if a.code != codes.Unavailable || info != nil || a.trailer.Get("ratelimit") != nil || !strings.HasPrefix(a.status.Message(), "The service is overloaded.") {
				t.Fatalf("%v %q, %v, %v", a.code, a.status.Message(), info, a.trailer)
			}
			if code := exchange(open(t, t.Context(), cc), "hello"); code != codes.Unavailable {
				t.Fatalf("a stream: %v", code)
			}
		}
		if len(waits) < 15 {
			t.Errorf("20 denials have only %d different waits: %v", len(waits), waits)
		}
		if code := exchange(stream, "hello"); code != codes.OK {
			t.Fatal(code)
		}
		synctest.Wait() // the stream goes on, without a permit
		if a := call(t.Context(), cc, sayMethod, "hello"); a.code != codes.OK || policytest.Load(t, e).InFlight != 0 {
			t.Errorf("after the first response of the stream: %v, %+v", a.code, policytest.Load(t, e))
		}
	})
}
