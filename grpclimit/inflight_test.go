package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

// awaitUnderWay waits until the wanted number of the two permits of the rule "all" are taken.
func awaitUnderWay(t *testing.T, e *policy.Engine, want int64) {
	t.Helper()
	s, err := e.Subject("all", nil)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Await(t, fmt.Sprint(want, " calls are in flight"), func() bool {
		results, err := s.Peek(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return 2-results[0].Remaining == want
	})
}

// A call is in flight until its handler has returned, whatever the kind of the call and however it ends.
func TestInFlight(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, `
rules:
  - {name: all, in_flight: 2}
  - {name: outcome, match: /test.Echo/Login, limit: 100/day, count: {status: 401}}`)
	cc := piped(t, grpclimit.Config{PerMessage: true}.Policy(e))
	for _, m := range []string{sayMethod, loginMethod} {
		for _, text := range []string{"hello", "code 16", "panic"} {
			call(t.Context(), cc, m, text)
			awaitUnderWay(t, e, 0)
		}
	}

	ctx, cancel := context.WithCancel(t.Context())
	for range 2 {
		stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, talkMethod)
		if err != nil {
			t.Fatal(err)
		}
		for range 5 { // messages use the permit of their stream
			in := wrapperspb.String("hello")
			if err := stream.SendMsg(in); err != nil {
				t.Fatal(err)
			}
			if err := stream.RecvMsg(in); err != nil {
				t.Fatal(err)
			}
		}
	}
	awaitUnderWay(t, e, 2)
	refused := resultText(t, call(t.Context(), cc, sayMethod, "hello"))
	if !strings.HasPrefix(refused, "ResourceExhausted") || !strings.Contains(refused, "\nviolated all, all, 2: Limit all: 2 in flight") {
		t.Errorf("during two streams: %s", refused)
	}
	cancel()
	awaitUnderWay(t, e, 0)
}

// A panic of an observer, from which a program may recover, releases the permit.
func TestInFlightObserverPanics(t *testing.T) {
	t.Parallel()
	e := policytest.Engine(t, "rules: [{name: all, in_flight: 2}]")
	e.Observe(func(context.Context, *policy.Observation) { panic("observed") })
	server := grpclimit.Policy(e)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("premise: the observer has not panicked")
			}
		}()
		_, _ = server.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: sayMethod}, func(context.Context, any) (any, error) { return nil, nil })
	}()
	awaitUnderWay(t, e, 0)
}
