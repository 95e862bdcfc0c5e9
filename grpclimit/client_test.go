package grpclimit_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
)

const s = time.Second

func waiting(c *grpclimit.Client) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithChainUnaryInterceptor(c.Unary), grpc.WithChainStreamInterceptor(c.Stream)}
}

const twoInTen = `rules: [{name: calls, limit: 2/10s, algorithm: fixed_window}]`

// A client paces itself: the third call waits for the window to end, and is not refused.
func TestClientPaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, twoInTen)), waiting(&grpclimit.Client{MaxRetries: -1})...)
		toWindow(10 * s)
		start := time.Now()
		for range 2 {
			call(t.Context(), cc, sayMethod, "")
		}
		if got := call(t.Context(), cc, sayMethod, ""); got.code != codes.OK || time.Since(start) < 10*s || time.Since(start) > 11*s {
			t.Errorf("%v after %v", got.status, time.Since(start))
		}
	})
}

// toWindow waits until a window of the clock begins.
func toWindow(length time.Duration) { time.Sleep(time.Until(time.Now().Truncate(length).Add(length))) }

// A client that knows nothing of the limit is refused, and comes back after what it is promised, a
// little later by chance.
func TestClientRepeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := testkit.NewPipes()
		serve(t, p, grpclimit.Policy(policytest.Engine(t, twoInTen)))
		other := connect(t, "passthrough:///test", dialer(p))
		toWindow(10 * s)
		for range 2 {
			call(t.Context(), other, sayMethod, "") // by somebody else
		}
		mine := connect(t, "passthrough:///test", append(waiting(&grpclimit.Client{}), dialer(p))...)
		start := time.Now()
		if got := call(t.Context(), mine, sayMethod, ""); got.code != codes.OK || time.Since(start) < 10*s || time.Since(start) > 15*s {
			t.Errorf("%v after %v", got.status, time.Since(start))
		}
	})
}

// What cannot wait is told so at once.
func TestClientDoesNotWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		client *grpclimit.Client
		within time.Duration
		order  string
		want   codes.Code
	}{
		"the deadline is nearer":               {&grpclimit.Client{}, 5 * s, "", codes.ResourceExhausted},
		"longer than MaxWait":                  {&grpclimit.Client{MaxWait: 5 * s}, time.Hour, "", codes.ResourceExhausted},
		"the handler's own, which says no end": {&grpclimit.Client{}, time.Hour, "code 8", codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cc := piped(t, grpclimit.Policy(policytest.Engine(t, twoInTen)), waiting(c.client)...)
				toWindow(10 * s)
				start := time.Now()
				orders := []string{"", "", c.order}
				if c.order != "" {
					orders = orders[2:]
				}
				var last codes.Code
				for _, order := range orders {
					ctx, cancel := context.WithTimeout(t.Context(), c.within)
					last = call(ctx, cc, sayMethod, order).code
					cancel()
				}
				if last != c.want || time.Since(start) != 0 {
					t.Errorf("%v after %v", last, time.Since(start))
				}
			})
		})
	}
}

// What will never pass is not tried again.
func TestClientTakesNeverForNever(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, `rules: [{name: dear, limit: 1/second, cost: {header: X-Cost, max: 9}}]`)), waiting(&grpclimit.Client{})...)
		start := time.Now()
		if got := call(t.Context(), cc, sayMethod, "", "x-cost", "5"); got.code != codes.ResourceExhausted || time.Since(start) != 0 {
			t.Errorf("%v after %v", got.status, time.Since(start))
		}
	})
}

// A client that leaves while it waits is told so.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, twoInTen)), waiting(&grpclimit.Client{})...)
		toWindow(10 * s)
		for range 2 {
			call(t.Context(), cc, sayMethod, "")
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*s, cancel)
		start := time.Now()
		if got := call(ctx, cc, sayMethod, ""); got.code != codes.Canceled || time.Since(start) != 3*s {
			t.Errorf("%v after %v", got.status, time.Since(start))
		}
	})
}

// Streams wait before they are opened, and tell what is left.
func TestClientPacesStreams(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var client grpclimit.Client
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, twoInTen)), waiting(&client)...)
		toWindow(10 * s)
		start := time.Now()
		for range 3 {
			if code := talkOnce(t, cc); code != codes.OK {
				t.Error(code)
			}
		}
		if took := time.Since(start); took < 10*s || took > 11*s {
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

// The client of grpc-go itself comes back after the pushback, without our interceptors.
func TestRetryOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cc := piped(t, grpclimit.Policy(policytest.Engine(t, twoInTen)), grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {
			"maxAttempts": 2, "initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
		toWindow(10 * s)
		start := time.Now()
		var at []string
		for range 3 {
			got := call(t.Context(), cc, sayMethod, "")
			at = append(at, fmt.Sprint(got.code, " ", time.Since(start)))
		}
		if want := "[OK 0s OK 0s OK 10s]"; fmt.Sprint(at) != want {
			t.Errorf("%v, not %s", at, want)
		}
	})
}
