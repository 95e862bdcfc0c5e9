package main

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/policy"
)

// checkStreams is how many requests one connection of HTTP/2 may have under way.
const checkStreams = 128

// openCheck makes the listener of --check serve.
func (s *serveSettings) openCheck(l *listener, engine *policy.Engine) error {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{
		Handler: proxy.BoundStreams(s.tracing.door(s.withAuth(engine, s.checkMux(engine))), time.Duration(s.stallTimeout)),
		// Whoever asks has all there is to send: there is a bound for the whole.
		ReadTimeout:    time.Duration(s.headerTimeout),
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: int(s.maxHeader),
		Protocols:      protocols,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: checkStreams},
		ErrorLog:       slog.NewLogLogger(s.doors.log.Handler(), slog.LevelDebug),
	}
	if s.doors.tls.cert != "" {
		proxy.BoundHeadsTLS(server, time.Duration(s.headerTimeout))
	} else {
		l.socket = proxy.BoundHeads(l.socket, time.Duration(s.headerTimeout))
	}
	l.drainHTTP(server)
	return nil
}

// checkMux is everything that the address of --check answers: each kind of question has a path of
// its own.
func (s *serveSettings) checkMux(engine *policy.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/", checkapi.Handler(checkapi.Config{
		Engine: engine, Authorize: s.doors.authorizer("--check"), DegradedField: s.degradedField, Logger: s.doors.log,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	return mux
}
