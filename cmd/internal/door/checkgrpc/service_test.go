package checkgrpc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/grpctest"
	"github.com/sluicehq/sluice/internal/faultstore"
	"github.com/sluicehq/sluice/internal/policytest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

const rules = `
version: 1
trusted_proxies: [10.0.0.1]
answers: {403: {status: 418, headers: {X-Support: "yes"}}}
rules:
  - {name: per-address, key: [client_ip], limit: 30/hour}
  - {name: per-key, key: [api_key], missing: skip, limits: [5/hour, 9/day]}
  - {name: login, match: POST /login, key: [body:username], limit: 2/hour}
  - {name: tenant, match: /tenant/, key: [header:X-Tenant], missing: refuse, limit: 3/hour}
  - {name: closed, match: /closed, block: true}
  - {name: open, match: /open, exempt: true}
  - {name: dear, match: /dear, limit: 1/hour, cost: {header: X-Cost, max: 9}}
  - {name: seen, match: /seen, limit: 1/hour, shadow: true}
`

// serve serves the API until the test ends, and returns a client.
func serve(t testing.TB, c door.Config) ChecksClient {
	t.Helper()
	return NewChecksClient(grpctest.Dial(t, grpctest.Serve(t, func(s *grpc.Server) { Register(s, c) })))
}

func about(method, path string, headers ...string) *CheckRequest {
	r := &HttpRequest{Method: method, Host: "example.com", Path: path, Client: "192.0.2.1"}
	for i := 0; i < len(headers); i += 2 {
		r.Headers = append(r.Headers, &Header{Name: headers[i], Value: headers[i+1]})
	}
	return &CheckRequest{About: &CheckRequest_Request{Request: r}}
}

func subject(rule, part, value string) *CheckRequest {
	return &CheckRequest{About: &CheckRequest_Subject{Subject: &Subject{Rule: rule, Key: map[string]string{part: value}}}}
}

func open(t *testing.T, client ChecksClient) grpc.BidiStreamingClient[CheckBatch, CheckBatchResponse] {
	t.Helper()
	stream, err := client.CheckStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestCalls(t *testing.T) {
	for _, c := range testkit.Script(t, "testdata/calls.txt") {
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := faultstore.New(memory.New())
				tokens := c.Options("token")
				config := door.Config{Engine: policy.NewEngine(store, policytest.Parse(t, c.Setup))}
				if tokens != nil {
					config.Authorize = testkit.Authorize("secret")
				}
				client := serve(t, config)
				places := testkit.Places()
				c.Play(t, func(step string) string {
					verb, message, _ := strings.Cut(places.In(step), " ")
					if verb == "outage" {
						store.Set(faultstore.Refused)
						return ""
					}
					out, err := call(t, client, verb, message)
					if err != nil {
						return fmt.Sprintf("%v: %s", status.Code(err), status.Convert(err).Message())
					}
					places.Note(out)
					return "OK " + out
				})
			})
		})
	}
}

// call sends a message in JSON. A line "authorization: …" below it becomes metadata. It returns the answer in JSON.
func call(t *testing.T, client ChecksClient, verb, message string) (_ string, err error) {
	t.Helper()
	message, authorization, authorized := strings.Cut(message, "\nauthorization: ")
	in, ctx := protojson.UnmarshalOptions{}, t.Context()
	if authorized {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
	}
	check, batch, held := &CheckRequest{}, &CheckBatch{}, &Place{}
	var out proto.Message
	read := in.Unmarshal([]byte(message), map[string]proto.Message{"check": check, "stream": batch, "hold": held, "release": held}[verb])
	if read != nil {
		t.Fatalf("%s: %v", message, read)
	}
	switch verb {
	case "check":
		if out, err = client.Check(ctx, check); status.Code(err) == codes.InvalidArgument {
			answers, _ := stream(ctx, client, &CheckBatch{Checks: []*CheckRequest{check}})
			if got := answers.GetAnswers()[0]; got.GetError() != status.Convert(err).Message() || got.GetAllowed() {
				t.Errorf("%s: a call returns %v, and a stream %v", message, err, got)
			}
		}
	case "stream":
		out, err = stream(ctx, client, batch)
	case "hold":
		out, err = client.Hold(ctx, held)
	case "release":
		out, err = client.Release(ctx, held)
	}
	if err != nil {
		return "", err
	}
	data, err := protojson.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer // protojson inserts spaces at random
	if err := json.Compact(&text, data); err != nil {
		t.Fatal(err)
	}
	return text.String(), nil
}

// stream sends a batch and closes the stream after the answer.
func stream(ctx context.Context, client ChecksClient, batch *CheckBatch) (*CheckBatchResponse, error) {
	s, err := client.CheckStream(ctx)
	if err != nil {
		return nil, err
	}
	_ = s.Send(batch) // Recv returns the error
	out, err := s.Recv()
	if err == nil && len(out.Answers) != len(batch.Checks) {
		err = fmt.Errorf("%d answers for %d checks", len(out.Answers), len(batch.Checks))
	}
	if _ = s.CloseSend(); err == nil {
		if _, end := s.Recv(); end != io.EOF {
			err = fmt.Errorf("after CloseSend: %w", end)
		}
	}
	return out, err
}

// A panic during a decision fails the call, but does not end the process.
func TestPanic(t *testing.T) {
	engine := policytest.Engine(t, rules)
	var broken atomic.Bool
	broken.Store(true)
	engine.Observe(func(context.Context, *policy.Observation) {
		if broken.Load() {
			panic("broken")
		}
	})
	client := serve(t, door.Config{Engine: engine, Logger: slog.New(slog.DiscardHandler)})
	if _, err := client.Check(t.Context(), about("GET", "/")); status.Code(err) != codes.Internal {
		t.Errorf("a call: %v", err)
	}
	stream := open(t, client)
	_ = stream.Send(&CheckBatch{Checks: []*CheckRequest{about("GET", "/"), about("GET", "/")}})
	if _, err := stream.Recv(); status.Code(err) != codes.Internal {
		t.Errorf("a stream: %v", err)
	}
	broken.Store(false)
	left := open(t, client) // not closed: it is canceled at the end of the test
	_ = left.Send(&CheckBatch{})
	if _, err := left.Recv(); err != nil {
		t.Errorf("the next stream: %v", err)
	}
	if out, err := client.Check(t.Context(), about("GET", "/")); err != nil || !out.Allowed {
		t.Errorf("the next call: %v, %v", out, err)
	}
}

// Every check, however strange, gets either a status or an error.
func FuzzCheck(f *testing.F) {
	f.Add("GET", "example.com", "/login?x=1", "X-Tenant", "a", "192.0.2.1", "per-address", "client_ip", "192.0.2.1", int64(1), int32(0), []byte("username=a"))
	f.Add("", "[::1]:80", "//a/%2f", "Host", "\xff", "::1", "login", "body:username", "\xff", int64(-1), int32(9), []byte(nil))
	s := &service{Base: door.New(door.Config{Engine: policytest.Engine(f, rules)})}
	f.Fuzz(func(t *testing.T, method, host, path, name, value, client, rule, part, key string, cost int64, mode int32, body []byte) {
		request := about(method, path, name, value)
		r := request.GetRequest()
		r.Host, r.Client, r.Body = host, client, body
		of := subject(rule, part, key)
		for _, one := range []*CheckRequest{request, of} {
			one.Cost, one.Mode = cost, Mode(mode)
		}
		for _, got := range s.decide(t.Context(), []*CheckRequest{request, of}) {
			if (got.Error == "") != (got.Status != 0) || got.Allowed && got.Status != 200 {
				t.Errorf("%v", got)
			}
		}
	})
}
