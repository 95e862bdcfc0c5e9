package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/grpclimit"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// Calls are answered as testdata/calls.txt says.
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
	var store sluice.Store = memory.New()
	rules, away := strings.CutPrefix(c.Setup, "the store is away\n")
	if away {
		store = brokenStore{}
	}
	config := grpclimit.Config{Attributes: func(ctx context.Context, _ string, attributes map[string]string) {
		md, _ := metadata.FromIncomingContext(ctx)
		attributes["user"] = strings.Join(md.Get("x-user"), "")
	}}
	cc := piped(t, config.Policy(policy.NewEngine(store, policytest.Parse(t, rules))))
	c.Play(t, func(step string) string {
		line, fields, _ := strings.Cut(step, "\n")
		method, order, _ := strings.Cut(line, " ")
		if method == "Talk" {
			return talkOnce(t, cc).String()
		}
		var md []string
		for field := range strings.SplitSeq(fields, "\n") {
			if name, value, found := strings.Cut(field, ": "); found {
				md = append(md, name, value)
			}
		}
		return said(t, call(t.Context(), cc, "/test.Echo/"+method, order, md...))
	})
}

// said returns the code of a call, its message, its limits, and its details.
func said(t *testing.T, a answered) string {
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
	if len(a.header) > 0 && a.code == codes.ResourceExhausted {
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
			t.Errorf("a detail is %v", d)
		}
	}
	return text
}

// brokenStore is a store that does not answer.
type brokenStore struct{}

func (brokenStore) Take(context.Context, []sluice.Charge, []sluice.Receipt) error {
	return errors.New("connection refused")
}
