package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/internal/testkit"
)

// wordService is a service with a unary and a streaming call, without generated code.
var wordService = grpc.ServiceDesc{
	ServiceName: "test.Words",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := decode(in); err != nil {
			return nil, err
		}
		md, _ := metadata.FromIncomingContext(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("head", strings.Join(md["x-asked"], ",")))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("tail", "t", "tail-bin", "\x00\xff"))
		if in.Value == "fail" {
			return nil, status.Error(codes.DataLoss, "lost, in 100 %")
		}
		return in, nil
	}}},
	Streams: []grpc.StreamDesc{{StreamName: "Both", ClientStreams: true, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error {
		for n := 0; ; n++ {
			in := new(wrapperspb.StringValue)
			if err := s.RecvMsg(in); errors.Is(err, io.EOF) {
				s.SetTrailer(metadata.Pairs("count", fmt.Sprint(n)))
				return nil
			} else if err != nil {
				return err
			}
			for range len(in.Value) { // once for each letter
				if err := s.SendMsg(in); err != nil {
					return err
				}
			}
		}
	}}},
}

var both = &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}

// wordsUpstream starts the service.
func wordsUpstream(t *testing.T, options ...grpc.ServerOption) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	s.RegisterService(&wordService, nil)
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return l.Addr().String()
}

// dialWords connects to the gateway.
func dialWords(t *testing.T, g *gateway, ours *testkit.Authority, options ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	c, err := grpc.NewClient(g.Addr, append(options, grpc.WithTransportCredentials(credentials.NewTLS(ours.Client())))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// Unary and streaming calls pass, with their header and trailer metadata, to upstreams with and without TLS. A rule
// that reads responses delays no message.
func TestGRPC(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	certificate, err := credentials.NewServerTLSFromFile(ours.Make("upstream"))
	if err != nil {
		t.Fatal(err)
	}
	policy := testkit.File(t, "policy.yaml", wide+`
  - name: read
    limit: 1000000/day
    cost: {tokens: total, estimate: 5}
`)
	for name, args := range map[string][]string{
		"h2c":   {"--upstream", "h2c://" + wordsUpstream(t)},
		"https": {"--upstream", "https://" + wordsUpstream(t, grpc.Creds(certificate)), "--upstream-ca", ours.CA},
	} {
		g := secure(t, ours, append(args, "--policy", policy)...)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := dialWords(t, g, ours)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var head, tail metadata.MD
			out := new(wrapperspb.StringValue)
			asked := metadata.AppendToOutgoingContext(ctx, "x-asked", "a")
			err := c.Invoke(asked, "/test.Words/Echo", wrapperspb.String("hello"), out, grpc.Header(&head), grpc.Trailer(&tail))
			if err != nil || out.Value != "hello" || fmt.Sprint(head["head"], tail["tail"]) != "[a] [t]" || fmt.Sprintf("%q", tail["tail-bin"]) != `["\x00\xff"]` {
				t.Errorf("unary: %v %v %v, %v", out, head, tail, err)
			}
			err = c.Invoke(ctx, "/test.Words/Echo", wrapperspb.String("fail"), out, grpc.Trailer(&tail))
			if s := status.Convert(err); s.Code() != codes.DataLoss || s.Message() != "lost, in 100 %" || fmt.Sprint(tail["tail"]) != "[t]" {
				t.Errorf("a failure: %v %v", err, tail)
			}
			large := strings.Repeat("l", 3<<20) // in many frames, beyond every window
			if err := c.Invoke(ctx, "/test.Words/Echo", wrapperspb.String(large), out); err != nil || out.Value != large {
				t.Errorf("a large message: %d bytes, %v", len(out.Value), err)
			}
			late, stop := context.WithTimeout(ctx, time.Nanosecond)
			defer stop()
			if err := c.Invoke(late, "/test.Words/Echo", wrapperspb.String("x"), out); status.Code(err) != codes.DeadlineExceeded {
				t.Errorf("late: %v", err)
			}
			if err := c.Invoke(ctx, "/test.Words/None", wrapperspb.String("x"), out); status.Code(err) != codes.Unimplemented {
				t.Errorf("no such method: %v", err)
			}
			checkBoth(ctx, t, c)
		})
	}
}

// checkBoth sends messages in both directions on one stream: each answer arrives before the next message is sent.
func checkBoth(ctx context.Context, t *testing.T, c *grpc.ClientConn) {
	t.Helper()
	s, err := c.NewStream(ctx, both, "/test.Words/Both")
	if err != nil {
		t.Error(err)
		return
	}
	in := new(wrapperspb.StringValue)
	for range 20 {
		if err := s.SendMsg(wrapperspb.String("abc")); err != nil {
			t.Error(err)
		}
		for range 3 {
			if err := s.RecvMsg(in); err != nil || in.Value != "abc" {
				t.Errorf("%v, %v", in, err)
				return
			}
		}
	}
	if err := errors.Join(s.CloseSend(), s.RecvMsg(in)); !errors.Is(err, io.EOF) {
		t.Errorf("the end: %v", err)
	}
	if got := s.Trailer()["count"]; fmt.Sprint(got) != "[20]" {
		t.Errorf("trailer %v", s.Trailer())
	}
}

// The gateway's own responses to calls are gRPC statuses.
func TestGRPCRefusals(t *testing.T) {
	t.Parallel()
	ours := testkit.NewAuthority(t)
	const rules = "version: 1\nrules: [{name: calls, match: POST /test.Words/Echo, key: [\"header:who\"], limit: 1/day, missing: refuse}]\n"
	upstream := wordsUpstream(t)
	g := secure(t, ours, "--policy", testkit.File(t, "policy.yaml", rules), "--upstream", "h2c://"+upstream, "--upstream", "away.test=h2c://127.0.0.1:1")
	c := dialWords(t, g, ours)
	out := new(wrapperspb.StringValue)
	invoke := func(who string) (metadata.MD, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var tail metadata.MD
		if who != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "who", who)
		}
		err := c.Invoke(ctx, "/test.Words/Echo", wrapperspb.String("x"), out, grpc.Trailer(&tail))
		return tail, err
	}
	if _, err := invoke("anna"); err != nil {
		t.Error(err)
	}
	tail, err := invoke("anna")
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || !strings.Contains(s.Message(), "calls: 1 per 86400s") || len(tail["grpc-retry-pushback-ms"]) != 1 {
		t.Errorf("a denial: %v %v", err, tail)
	}
	if _, err := invoke("bert"); err != nil {
		t.Error(err)
	}
	if _, err := invoke(""); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a call without its key: %v", err)
	}
	nobody := dialWords(t, g, ours, grpc.WithAuthority("away.test"))
	if err := nobody.Invoke(t.Context(), "/test.Words/Other", wrapperspb.String("x"), out); status.Code(err) != codes.Unavailable {
		t.Errorf("no upstream: %v", err)
	}
}

// A stream without messages is ended after --idle-timeout, while a stream with messages continues.
func TestQuietStreams(t *testing.T) {
	t.Parallel()
	const idle = time.Second
	ours := testkit.NewAuthority(t)
	g := secure(t, ours, "--policy", testkit.File(t, "policy.yaml", wide), "--upstream", "h2c://"+wordsUpstream(t), "--stall-timeout", "100ms", "--idle-timeout", idle.String())
	c := dialWords(t, g, ours)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	talk := func(s grpc.ClientStream) error {
		return errors.Join(s.SendMsg(wrapperspb.String("a")), s.RecvMsg(new(wrapperspb.StringValue)))
	}
	// start returns a stream, and the time of its first message. On a busy machine, a stream may end before that.
	start := func() (grpc.ClientStream, time.Time) {
		for {
			began := time.Now()
			s, err := c.NewStream(ctx, both, "/test.Words/Both")
			if err == nil {
				err = talk(s)
			}
			if err == nil {
				return s, began
			}
			if time.Since(began) < idle || ctx.Err() != nil {
				t.Fatalf("a new stream: %v", err)
			}
		}
	}
	silent, _ := start()
	talks, started := start()
	ended := make(chan error, 1)
	go func() { ended <- silent.RecvMsg(new(wrapperspb.StringValue)) }()
	for going := true; going; {
		select {
		case err := <-ended:
			if going = false; err == nil || ctx.Err() != nil {
				t.Errorf("a silent stream continues: %v", err)
			}
		case <-time.After(200 * time.Millisecond): // longer than --stall-timeout
		}
		began := time.Now()
		if err := talk(talks); err == nil {
			started = began
		} else if time.Since(started) < idle {
			t.Fatalf("a stream with messages: %v", err)
		} else { // a busy machine has kept it silent for that long
			talks, started = start()
		}
	}
}
