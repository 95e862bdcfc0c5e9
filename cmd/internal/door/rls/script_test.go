package rls_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/policy"
)

func TestDecisions(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/decisions.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := byScript(t, &c)
				c.Play(t, func(step string) string {
					step, rest, _ := strings.Cut(step, "\n")
					ctx := t.Context()
					for authorization := range strings.SplitSeq(rest, "\n") {
						if value, found := strings.CutPrefix(authorization, "authorization: "); found {
							ctx = metadata.AppendToOutgoingContext(ctx, "authorization", value)
						}
					}
					out, err := client.ShouldRateLimit(ctx, requestOf(t, step))
					if err != nil {
						return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
					}
					return written(t, out)
				})
			})
		})
	}
}

// byScript serves the configuration or policy of a case. The first line of the case may contain options.
func byScript(t *testing.T, script *testkit.Case) pb.RateLimitServiceClient {
	t.Helper()
	options := script.Options("options")
	change := func(c *rls.Config) {
		for _, option := range options {
			switch option {
			case "answers":
				c.Answers = true
			case "metadata":
				c.Metadata = true
			case "count-refused":
				c.CountRefused = true
			case "tokens":
				c.Authorize = testkit.Authorize("good")
			case "shadow":
				c.Engine.ShadowAll()
			case "outage":
				store := faultstore.New(nil)
				store.Set(func(context.Context, faultstore.Call) error { return errors.New("dial tcp 192.0.2.1:6379: secret") })
				c.Engine = policy.NewEngine(store, c.Engine.Policy())
			default:
				t.Fatalf("unknown option %q", option)
			}
		}
	}
	if strings.HasPrefix(script.Setup, "version:") {
		return byPolicy(t, script.Setup, change)
	}
	return byConfig(t, script.Setup, change)
}

// requestOf parses a step of testdata/decisions.txt. The first lines of the file explain the format.
func requestOf(t *testing.T, step string) *pb.RateLimitRequest {
	t.Helper()
	domain, rest, _ := strings.Cut(step, " ")
	r := &pb.RateLimitRequest{Domain: domain}
	if hits, found := strings.CutPrefix(rest, "+"); found {
		hits, rest, _ = strings.Cut(hits, " ")
		r.HitsAddend = uint32(number(t, hits))
	}
	if rest == "" {
		return r
	}
	for text := range strings.SplitSeq(rest, "|") {
		d := &common.RateLimitDescriptor{}
		for _, word := range strings.Fields(text) {
			key, value, _ := strings.Cut(word, "=")
			count, unit, isLimit := strings.Cut(value, "/")
			switch {
			case word[0] == '+' || word[0] == '-':
				d.HitsAddend, d.IsNegativeHits = wrapperspb.UInt64(number(t, word[1:])), word[0] == '-'
			case key == "" && isLimit:
				d.Limit = limitOf(t, count, unit)
			default:
				d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: key, Value: value})
			}
		}
		r.Descriptors = append(r.Descriptors, d)
	}
	return r
}

func limitOf(t *testing.T, count, text string) *common.RateLimitDescriptor_RateLimitOverride {
	t.Helper()
	name, times, multiplied := strings.Cut(text, "*")
	unit, known := typev3.RateLimitUnit_value[name]
	if n, err := strconv.Atoi(name); !known && err == nil {
		unit = int32(n)
	}
	l := &common.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: uint32(number(t, count)), Unit: typev3.RateLimitUnit(unit)}
	if multiplied {
		l.UnitMultiplier = wrapperspb.UInt32(uint32(number(t, times)))
	}
	return l
}

func number(t *testing.T, text string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// written formats a response as in testdata/decisions.txt.
func written(t *testing.T, out *pb.RateLimitResponse) string {
	t.Helper()
	known := new(pb.RateLimitResponse)
	if data, err := proto.Marshal(out); err != nil || (proto.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, known) != nil || !proto.Equal(out, known) {
		t.Errorf("unknown fields: %v, %v", out, err)
	}
	codes := map[pb.RateLimitResponse_Code]string{ok: "OK", over: "OVER"}
	var b strings.Builder
	if len(out.GetStatuses()) != 1 || out.GetStatuses()[0].GetCode() != out.GetOverallCode() {
		fmt.Fprintln(&b, codes[out.GetOverallCode()])
	}
	for _, s := range out.GetStatuses() {
		b.WriteString(codes[s.GetCode()])
		if l := s.GetCurrentLimit(); l != nil {
			fmt.Fprintf(&b, " %s %d/%v", cmp.Or(l.GetName(), "-"), l.GetRequestsPerUnit(), l.GetUnit())
			if m := l.GetUnitMultiplier(); m != nil {
				fmt.Fprintf(&b, "*%d", m.GetValue())
			}
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		} else if s.GetLimitRemaining() != 0 {
			fmt.Fprintf(&b, " left %d", s.GetLimitRemaining())
		}
		if d := s.GetDurationUntilReset(); d != nil {
			fmt.Fprintf(&b, " reset %v", d.AsDuration().Seconds())
		}
		b.WriteByte('\n')
	}
	for _, h := range out.GetResponseHeadersToAdd() {
		fmt.Fprintf(&b, "%s: %s\n", h.GetKey(), h.GetValue())
	}
	b.Write(out.GetRawBody())
	if m := out.GetDynamicMetadata(); m != nil {
		data, err := json.Marshal(m.AsMap())
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", data)
	}
	return b.String()
}

func TestMistakes(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/mistakes.txt") {
		c.Play(t, func(step string) string {
			limits, err := rls.Read(files(strings.Split(step, "\n===\n")...), sluice.FixedWindow)
			if err == nil {
				_, err = policy.CompileAt(limits.Document, limits.Where)
			}
			if err != nil {
				return err.Error()
			}
			names := "rules"
			for _, r := range limits.Document.Rules {
				names += " " + r.Name
			}
			return names
		})
	}
}
