package histories

import (
	"net"
	"net/http"
	"net/textproto"
	"strings"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluicehq/sluice/cmd/internal/door/rls"
	"github.com/sluicehq/sluice/cmd/internal/grpctest"
	"github.com/sluicehq/sluice/grpclimit"
)

// serveGRPC serves the services that register adds, and returns a client on this machine.
func (p *player) serveGRPC(register func(*grpc.Server), options ...grpc.ServerOption) *grpc.ClientConn {
	p.Helper()
	network := grpctest.Serve(p, register, options...)
	network.Peer = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4711}
	return grpctest.Dial(p, network)
}

// codesOf has the gRPC code for each status of a handler.
var codesOf = map[int]codes.Code{
	200: codes.OK, 400: codes.InvalidArgument, 401: codes.Unauthenticated, 403: codes.PermissionDenied, 404: codes.NotFound,
	409: codes.AlreadyExists, 429: codes.ResourceExhausted, 500: codes.Internal, 501: codes.Unimplemented, 503: codes.Unavailable,
}

// openInterceptor asks [grpclimit].
func openInterceptor(p *player) func(*ongoing) {
	behind := new(backend)
	handle := func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		o := behind.find(md.Get(stepField)[0])
		if o.holds {
			<-o.release
		}
		if o.response == nil {
			return stream.SendMsg(&emptypb.Empty{})
		}
		if o.response.bytes > 0 {
			p.cannot("it does not count the bytes of messages")
		}
		header := metadata.MD{}
		for name, values := range o.response.header {
			header.Set(name, values...)
		}
		_ = stream.SetHeader(header)
		code, known := codesOf[o.response.status]
		if !known {
			p.cannot("the status has no gRPC code")
		}
		if code != codes.OK {
			return status.Error(code, "answered")
		}
		return stream.SendMsg(&emptypb.Empty{})
	}
	limit := grpclimit.Config{Logger: silent()}.Policy(p.engine)
	conn := p.serveGRPC(func(*grpc.Server) {}, append(limit.Options(), grpc.UnknownServiceHandler(handle))...)
	return func(o *ongoing) {
		switch {
		case o.mode != "":
			p.cannot("calls are only charged")
		case o.id != "":
			p.cannot("it takes no IDs")
		case o.method != "POST" || strings.Count(o.path, "/") != 2:
			if o.path != "/" {
				p.cannot("its requests are POSTs with a path of two segments")
			}
		}
		path := o.path
		if path == "/" {
			path = "/test.Service/Method"
		}
		md := metadata.Pairs(stepField, behind.expect(o), "X-Forwarded-For", o.client)
		for name, values := range o.fields() {
			md.Append(name, values...)
		}
		var head, trailer metadata.MD
		err := conn.Invoke(metadata.NewOutgoingContext(p.Context(), md), path, &emptypb.Empty{}, &emptypb.Empty{},
			grpc.Header(&head), grpc.Trailer(&trailer))
		h := make(http.Header)
		for name, values := range metadata.Join(head, trailer) {
			h[textproto.CanonicalMIMEHeaderKey(name)] = values
		}
		if wait := h.Get("Grpc-Retry-Pushback-Ms"); wait != "" && wait != "-1" {
			h.Set("Retry-After", time.Duration(p.number(wait)*int64(time.Millisecond)).String())
		}
		o.got = p.readFields(statusOfCode(err, o.response), withoutWait(h))
		if text := h.Get("Retry-After"); text != "" {
			wait, _ := time.ParseDuration(text)
			o.got.retry = (wait + time.Second - 1).Truncate(time.Second)
		}
	}
}

func withoutWait(h http.Header) http.Header {
	h = h.Clone()
	h.Del("Retry-After")
	return h
}

// statusOfCode returns the status for a call that the limit has denied, and 200 for any other call.
func statusOfCode(err error, answered *response) int {
	code := status.Code(err)
	if answered != nil && code == codesOf[answered.status] {
		return http.StatusOK
	}
	for status, c := range codesOf {
		if c == code {
			return status
		}
	}
	return int(code)
}

// openRateLimitService asks as Envoy does, with a descriptor of all headers and the client.
func openRateLimitService(p *player) func(*ongoing) {
	conn := p.serveGRPC(func(s *grpc.Server) { rls.Register(s, rls.Config{Engine: p.engine, Logger: silent()}) },
		grpc.ForceServerCodecV2(rls.Codec()))
	client := pb.NewRateLimitServiceClient(conn)
	return func(o *ongoing) {
		switch {
		case o.mode != "" || o.holds || o.response != nil || o.id != "":
			p.cannot("descriptors are only charged")
		case o.path != "/" || o.method != "GET":
			p.cannot("descriptors have no path")
		}
		d := &common.RateLimitDescriptor{Entries: []*common.RateLimitDescriptor_Entry{{Key: "remote_address", Value: o.client}}}
		for name := range o.header {
			d.Entries = append(d.Entries, &common.RateLimitDescriptor_Entry{Key: name, Value: o.header.Get(name)})
		}
		if o.cost > 0 {
			d.HitsAddend = wrapperspb.UInt64(uint64(o.cost))
		}
		out, err := client.ShouldRateLimit(p.Context(), &pb.RateLimitRequest{
			Domain: "histories", Descriptors: []*common.RateLimitDescriptor{d},
		})
		if err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
		o.got.status = http.StatusOK
		one := out.GetStatuses()[0]
		if out.GetOverallCode() != pb.RateLimitResponse_OK {
			o.got.status = http.StatusTooManyRequests
			o.got.retry = one.GetDurationUntilReset().AsDuration()
		}
		if limit := one.GetCurrentLimit(); limit != nil {
			o.got.left = []left{{name: limit.GetName(), units: int64(one.GetLimitRemaining())}}
		}
	}
}
