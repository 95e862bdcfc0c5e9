package grpclimit_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
)

func waiting(c *grpclimit.Client) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

// Streams wait before they are opened, and tell what is left.
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
		// One that is not read from leaves nothing behind.
		ctx, cancel := context.WithCancel(t.Context())
		_ = open(t, ctx, cc).SendMsg(wrapperspb.String("wait"))
		cancel()
		synctest.Wait()
		if n := client.UnderWay(); n > 0 {
			t.Errorf("%d are kept", n)
		}
	})
}
