package grpclimit

import (
	"context"
	"net/http"
	"net/textproto"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice/internal/pace"
)

// Client has interceptors for a client that obeys the limits of servers, as package client does for HTTP. The zero
// value is ready. It is safe for concurrent use and must not be copied: use one for all connections.
type Client struct {
	// MaxWait is the longest wait before a call is sent. It is also the longest time, reported by the server, after
	// which a denied call is repeated; a random delay of at most MaxWait is added to this time. Zero means a minute. A
	// call that would have to wait longer does not wait: it is sent at once, and a denial is returned to the caller.
	MaxWait time.Duration
	// MaxRetries is how often a call is repeated: 4 times if zero, never if negative.
	MaxRetries int

	once  sync.Once
	pacer pace.Pacer
}

func (c *Client) set() {
	c.once.Do(func() { c.pacer.MaxWait, c.pacer.MaxRetries = c.MaxWait, c.MaxRetries })
}

// Unary is a [grpc.UnaryClientInterceptor].
func (c *Client) Unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c.set()
	c.pacer.Earn()
	to := target(ctx, cc, method)
	for n := 0; ; n++ {
		pass, err := c.pacer.Wait(ctx, to)
		if err != nil {
			return ended(ctx)
		}
		var header, trailer metadata.MD
		err = invoke(ctx, method, req, reply, cc, append(slices.Clip(opts), grpc.Header(&header), grpc.Trailer(&trailer))...)
		a := read(err, header, trailer)
		c.pacer.Tell(pass, a)
		if !a.Refused {
			return err
		}
		wait, again := c.pacer.Again(ctx, pass, n, a.Promise)
		if !again {
			return err
		}
		if pace.Sleep(ctx, wait) != nil {
			return ended(ctx)
		}
	}
}

// Stream is a [grpc.StreamClientInterceptor]. It delays the opening of a stream, but does not repeat a denied
// stream, because it does not keep the messages that were sent.
func (c *Client) Stream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c.set()
	c.pacer.Earn()
	pass, err := c.pacer.Wait(ctx, target(ctx, cc, method))
	if err != nil {
		return nil, ended(ctx)
	}
	stream, err := open(ctx, desc, cc, method, append(slices.Clip(opts), grpc.OnFinish(func(error) { c.pacer.Done(pass) }))...)
	if err != nil {
		c.pacer.Done(pass)
		return nil, err
	}
	return &pacedStream{ClientStream: stream, pacer: &c.pacer, pass: pass}, nil
}

// pacedStream is a stream that reads its header and trailers after the first message.
type pacedStream struct {
	grpc.ClientStream
	pacer *pace.Pacer
	pass  *pace.Pass
	once  sync.Once
}

func (l *pacedStream) RecvMsg(message any) error {
	err := l.ClientStream.RecvMsg(message)
	l.once.Do(func() {
		var trailer metadata.MD
		if err != nil {
			trailer = l.Trailer()
		}
		header, _ := l.Header() // RecvMsg returns the same error
		l.pacer.Tell(l.pass, read(err, header, trailer))
	})
	return err
}

// ended returns the error of a call after its context has ended during a wait.
func ended(ctx context.Context) error { return status.FromContextError(ctx.Err()).Err() }

// read returns the limits that the answer to a call reports. The answer is a denial if it also reports when to repeat
// the call.
func read(err error, header, trailer metadata.MD) (a pace.Answer) {
	fields := make(http.Header, len(header)+len(trailer))
	for _, md := range []metadata.MD{header, trailer} {
		for name, values := range md {
			name = textproto.CanonicalMIMEHeaderKey(name)
			fields[name] = append(fields[name], values...)
		}
	}
	a.States = pace.States(fields, time.Now())
	s, _ := status.FromError(err)
	if s.Code() == codes.ResourceExhausted || s.Code() == codes.Unavailable {
		a.Promise, a.Refused = promise(s, trailer)
	}
	return a
}

// promise returns the retry delay of the server, which is the longer of RetryInfo and the pushback. It reports
// whether the call may be repeated after this delay.
func promise(s *status.Status, trailer metadata.MD) (wait time.Duration, ok bool) {
	if values := trailer.Get(pushback); len(values) > 0 {
		ms, err := strconv.ParseInt(values[0], 10, 32)
		if err != nil || ms < 0 {
			return 0, false
		}
		wait, ok = time.Duration(ms)*time.Millisecond, true
	}
	for _, d := range s.Details() {
		if info, isInfo := d.(*errdetails.RetryInfo); isInfo {
			wait, ok = max(wait, info.GetRetryDelay().AsDuration()), true
		}
	}
	return wait, ok
}

func target(ctx context.Context, cc *grpc.ClientConn, method string) pace.Target {
	peer := append(make([]string, 0, 8), cc.Target())
	md, _ := metadata.FromOutgoingContext(ctx)
	for _, name := range []string{"authorization", "x-api-key"} {
		peer = append(peer, md.Get(name)...)
	}
	return pace.Target{Peer: pace.Hash(peer...), Route: pace.Hash(method)}
}
