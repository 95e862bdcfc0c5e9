package grpclimit

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/internal/clientip"
	"github.com/sluicehq/sluice/policy"
)

// Config has the settings of a server's interceptors. The zero value is a good default.
type Config struct {
	// Dialect is the form of the RateLimit fields: [answer.Draft11] if zero.
	Dialect answer.Dialect
	// XFields is the form of the X-RateLimit fields: [answer.XUnix] if zero.
	XFields answer.XFields
	// Name is the name that responses give to the limit of a Server made by [Config.Limit]. If Name is empty, they
	// use the name of the limiter, or "default" if that is empty, too.
	Name string
	// PerMessage counts each message from the client of a stream. The opening of the stream and the first message
	// count as one. A message that does not fit ends the stream; a message in a queue waits for its turn. The
	// outcome of the stream settles only the first charge: messages after the first always count.
	PerMessage bool
	// ForwardedHeader is the name of the metadata in which trusted proxies of [Config.Policy] name the client. Empty
	// means x-forwarded-for.
	ForwardedHeader string
	// Attributes sets values that only the program knows, such as the user of a call, for rules of [Config.Policy]
	// with a key such as "key: [attr:user]".
	Attributes func(ctx context.Context, fullMethod string, attributes map[string]string)
	// Logger gets a line when the store becomes unavailable, and when it is available again. Nil means
	// slog.Default().
	Logger *slog.Logger
}

// Server has interceptors for a gRPC server. It is safe for concurrent use.
type Server struct {
	config  Config
	engine  *policy.Engine // nil if a limiter decides: its decisions need not be settled or released
	limiter *sluice.Limiter
	key     func(ctx context.Context, fullMethod string) string // returns the limiter's key
	name    string                                              // name of the limiter's limit
	encoder answer.Encoder
	outage  answer.Outage
}

// question is the argument of decide.
type question struct {
	request policy.Request // for the engine
	key     string         // for the limiter
}

// Policy returns interceptors that limit calls by the policy of engine.
func Policy(engine *policy.Engine) *Server { return Config{}.Policy(engine) }

// Limit returns interceptors that take one unit of the limiter for each call, under the key that the function key
// returns. If that function is nil, the key is the address of the peer, as in
// [github.com/sluicehq/sluice/httplimit.ClientIP]. If the store does not answer, calls are allowed; a limiter with
// OnError [sluice.Deny] denies them as UNAVAILABLE.
func Limit(limiter *sluice.Limiter, key func(ctx context.Context, fullMethod string) string) *Server {
	return Config{}.Limit(limiter, key)
}

// Policy does what the function [Policy] does, with the settings of c.
func (c Config) Policy(engine *policy.Engine) *Server {
	if engine == nil {
		panic("grpclimit: Policy needs an engine: policy.NewEngine returns one")
	}
	s := c.server()
	s.engine = engine
	return s
}

// Limit does what the function [Limit] does, with the settings of c.
func (c Config) Limit(limiter *sluice.Limiter, key func(ctx context.Context, fullMethod string) string) *Server {
	if limiter == nil {
		panic("grpclimit: Limit needs a limiter: sluice.NewLimiter returns one, or an error")
	}
	if key == nil {
		key = peerKey
	}
	s := c.server()
	s.limiter, s.key, s.name = limiter, key, cmp.Or(c.Name, limiter.Name(), "default")
	return s
}

func (c Config) server() *Server {
	return &Server{
		config:  c,
		encoder: answer.Encoder{Dialect: c.Dialect, XFields: c.XFields},
		outage:  answer.Outage{Logger: c.Logger},
	}
}

// Options returns options of a server with these interceptors. Use them if the server has no other interceptors, or
// if all other interceptors come later.
func (s *Server) Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.Unary), grpc.ChainStreamInterceptor(s.Stream)}
}

// Unary is a [grpc.UnaryServerInterceptor].
func (s *Server) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (response any, err error) {
	q := s.describe(ctx, info.FullMethod)
	var d policy.Decision
	defer s.release(ctx, &d)
	fields, refusal := s.ask(ctx, &q, &d)
	if refusal != nil {
		_ = grpc.SetTrailer(ctx, fields) // an error is possible only outside a call
		return nil, refusal
	}
	_ = grpc.SetHeader(ctx, fields)
	if d.Adapts() {
		c := newClock(ctx, s, &d)
		err = errPanicked // unless the handler returns
		defer func() { c.answered(err) }()
	}
	if !d.Unsettled() {
		return handler(ctx, req)
	}
	o := newOutcome(ctx)
	defer func() { s.engine.Settle(ctx, d, o.final(ctx)) }()
	response, err = handler(o.context(ctx), req)
	o.sent(response)
	o.end(err)
	return response, err
}

// Stream is a [grpc.StreamServerInterceptor].
func (s *Server) Stream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) (err error) {
	ctx := stream.Context()
	q := s.describe(ctx, info.FullMethod)
	var d policy.Decision
	defer s.release(ctx, &d)
	fields, refusal := s.ask(ctx, &q, &d)
	if refusal != nil {
		stream.SetTrailer(fields)
		return refusal
	}
	_ = stream.SetHeader(fields)
	if s.config.PerMessage && info.IsClientStream {
		q.request.Ends, q.request.Timed, q.request.Part = false, false, true
		stream = &metered{ServerStream: stream, server: s, question: &q}
	}
	if d.Adapts() {
		c := newClock(ctx, s, &d)
		err = errPanicked // unless the handler returns
		defer func() { c.answered(err) }()
		stream = &timed{stream, c}
	}
	if !d.Unsettled() {
		return handler(srv, stream)
	}
	o := newOutcome(ctx)
	defer func() { s.engine.Settle(ctx, d, o.final(ctx)) }()
	err = handler(srv, &watched{stream, o, o.context(ctx)})
	o.end(err)
	return err
}

// release gives back the permits of a call after its end, or after a panic of its handler or observer.
func (s *Server) release(ctx context.Context, d *policy.Decision) {
	if d.Held() {
		s.engine.Release(ctx, *d)
	}
}

// ask decides about a call, and waits for its turn. It returns the fields that report limits, and the error of a
// denied call or nil.
func (s *Server) ask(ctx context.Context, q *question, d *policy.Decision) (metadata.MD, error) {
	s.decide(ctx, q, d)
	answer.Settle(ctx, d, nil, func(ctx context.Context) { s.giveBack(ctx, q, d) })
	s.outage.Note(d)
	var a answer.Answer
	header := make(http.Header, 8)
	s.encoder.Encode(&a, header, d, s.client())
	if a.Status == http.StatusOK {
		return lower(header), nil
	}
	return s.refuse(&a, header, d)
}

// metered is a stream that counts each message. One goroutine at a time reads from it.
type metered struct {
	grpc.ServerStream
	server   *Server
	question *question
	first    bool // the first message was received
	refusal  error
}

func (m *metered) RecvMsg(message any) error {
	if m.refusal != nil {
		return m.refusal
	}
	if err := m.ServerStream.RecvMsg(message); err != nil || !m.first {
		m.first = true
		return err
	}
	var d policy.Decision
	fields, refusal := m.server.ask(m.Context(), m.question, &d)
	if refusal != nil {
		m.refusal = refusal
		m.SetTrailer(fields)
	}
	return refusal
}

// describe returns the question about a call.
func (s *Server) describe(ctx context.Context, fullMethod string) question {
	if s.engine == nil {
		return question{key: s.key(ctx, fullMethod)}
	}
	header := canonical(ctx)
	r := policy.Request{
		Door:   "grpc_server",
		Ends:   true,
		Timed:  true,
		Method: http.MethodPost, Host: header.Get(":authority"), Path: fullMethod,
		Peer: peerAddr(ctx), Header: header, ForwardedHeader: s.config.ForwardedHeader,
	}
	if s.config.Attributes != nil {
		r.Attributes = map[string]string{}
		s.config.Attributes(ctx, fullMethod, r.Attributes)
	}
	return question{request: r}
}

func (s *Server) decide(ctx context.Context, q *question, d *policy.Decision) {
	if s.engine == nil {
		answer.Take(ctx, s.limiter, s.name, q.key, 1, d)
	} else {
		s.engine.DecideInto(ctx, &q.request, d)
	}
}

func (s *Server) giveBack(ctx context.Context, q *question, d *policy.Decision) {
	if s.engine == nil {
		answer.GiveBack(s.limiter, q.key, 1, d)
	} else {
		s.engine.Refund(ctx, *d)
	}
}

// canonical returns the metadata of a call as an HTTP header. Pseudo-header fields keep their colon, so that no key
// of a policy refers to them.
func canonical(ctx context.Context) http.Header {
	md, _ := metadata.FromIncomingContext(ctx)
	header := make(http.Header, len(md))
	for name, values := range md {
		header[textproto.CanonicalMIMEHeaderKey(name)] = values
	}
	return header
}

// lower returns fields as metadata, without those that describe an HTTP body.
func lower(header http.Header) metadata.MD {
	md := make(metadata.MD, len(header))
	for name, values := range header {
		if name != "Content-Type" && name != "Cache-Control" {
			md[strings.ToLower(name)] = values
		}
	}
	return md
}

// peerAddr returns the address of the peer: 127.0.0.1 for a Unix socket, and the zero Addr if the peer has no
// address.
func peerAddr(ctx context.Context) netip.Addr {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return netip.Addr{}
	}
	if p.Addr.Network() == "unix" {
		return clientip.Local
	}
	addr, _ := clientip.Peer(p.Addr.String())
	return addr
}

// peerKey returns the address of the peer as a key: for IPv6, its /64.
func peerKey(ctx context.Context, _ string) string { return clientip.Key(peerAddr(ctx), 64) }
