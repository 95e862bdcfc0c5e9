package grpclimit_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Calls return the results in testdata/calls.txt.
func TestCalls(t *testing.T) {
	t.Parallel()
	for _, c := range testkit.Script(t, "testdata/calls.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playCalls(t, &c) })
		})
	}
}

func playCalls(t *testing.T, c *testkit.Case) {
	store := faultstore.New(memory.New())
	var options []grpc.DialOption
	client := &grpclimit.Client{}
	for _, word := range c.Options("config") {
		switch name, value, _ := strings.Cut(word, "="); name {
		case "unavailable":
			store.Set(faultstore.Refused)
		case "waits":
			options = waiting(client)
		case "no-retries":
			client.MaxRetries = -1
		case "max-wait":
			client.MaxWait = duration(t, value)
		case "grpc-retries":
			options = append(options, grpc.WithDefaultServiceConfig(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 2,
				"initialBackoff": "0.01s", "maxBackoff": "0.01s", "backoffMultiplier": 1, "retryableStatusCodes": ["RESOURCE_EXHAUSTED"]}}]}`))
		default:
			t.Fatalf("unknown setting %q", word)
		}
	}
	config := grpclimit.Config{Attributes: func(ctx context.Context, _ string, attributes map[string]string) {
		md, _ := metadata.FromIncomingContext(ctx)
		attributes["user"] = strings.Join(md.Get("x-user"), "")
	}}
	network := serve(t, config.Policy(policy.NewEngine(store, policytest.Parse(t, c.Setup))))
	mine, other := connect(t, network, options...), connect(t, network)
	c.Play(t, func(step string) string {
		line, fields, _ := strings.Cut(step, "\n")
		cc, ctx, start := mine, t.Context(), time.Now()
		if rest, found := strings.CutPrefix(line, "other "); found {
			cc, line = other, rest
		}
		method, order, _ := strings.Cut(line, " ")
		if method == "Talk" {
			return talkOnce(t, cc).String()
		}
		var md []string
		for field := range strings.SplitSeq(fields, "\n") {
			name, value, found := strings.Cut(field, ": ")
			switch {
			case name == "deadline":
				within, cancel := context.WithTimeout(ctx, duration(t, value))
				defer cancel()
				ctx = within
			case name == "leaves":
				within, leave := context.WithCancel(ctx)
				defer leave()
				time.AfterFunc(duration(t, value), leave)
				ctx = within
			case found:
				md = append(md, name, value)
			}
		}
		defer synctest.Wait() // until a call is refunded that its client has left
		text := resultText(t, call(ctx, cc, "/test.Echo/"+method, order, md...))
		if took := time.Since(start); took > 0 {
			text += fmt.Sprint("\nafter ", took)
		}
		return text
	})
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// resultText returns the result of a call as text: its code, message, limits and details.
func resultText(t *testing.T, a answered) string {
	t.Helper()
	text := a.code.String()
	if a.code != codes.OK {
		text += ": " + a.status.Message()
	}
	for name, values := range map[string][]string{"header ": a.header.Get("ratelimit"), "trailer ": a.trailer.Get("ratelimit")} {
		if len(values) > 0 {
			text += "\n" + name + strings.Join(values, ", ")
		}
	}
	if len(a.header) > 0 && a.code == codes.ResourceExhausted && len(a.trailer.Get("ratelimit")) > 0 {
		t.Errorf("the header %v keeps clients from retrying", a.header)
	}
	if pushed := a.trailer.Get("grpc-retry-pushback-ms"); len(pushed) > 0 {
		text += "\npushback " + strings.Join(pushed, ", ")
	}
	for _, d := range a.status.Details() {
		switch d := d.(type) {
		case *errdetails.RetryInfo:
			text += fmt.Sprint("\nretry ", d.GetRetryDelay().AsDuration().Round(time.Millisecond))
		case *errdetails.QuotaFailure:
			for _, v := range d.GetViolations() {
				text += fmt.Sprintf("\nviolated %s, %s, %d: %s", v.Subject, v.QuotaId, v.QuotaValue, v.Description)
			}
		default:
			t.Errorf("unexpected detail %v", d)
		}
	}
	return text
}
