package server

import (
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
)

// checkStreams bounds the requests in flight on one HTTP/2 connection.
const checkStreams = 128

// openCheck serves the JSON API and auth requests.
func (s *server) openCheck(l *listeners.Listener, authorize authorizer) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	c := &s.settings.connections
	headTimeout := time.Duration(c.headerTimeout)
	mux := http.NewServeMux()
	mux.Handle("/v1/", checkapi.Handler(s.doorConfig(authorize)))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	web := &http.Server{
		Handler:        proxy.BoundStreams(s.tracer.Integration(s.withAuth(mux, authorize)), time.Duration(c.stallTimeout)),
		ReadTimeout:    headTimeout, // enough for the body, too, because callers send whole requests at once
		IdleTimeout:    2 * time.Minute,
		MaxHeaderBytes: int(c.maxHeader),
		Protocols:      protocols,
		HTTP2:          &http.HTTP2Config{MaxConcurrentStreams: checkStreams},
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	if s.settings.integrations.tls.Any() {
		proxy.BoundHeadsTLS(web, headTimeout)
	} else {
		l.Socket = proxy.BoundHeads(l.Socket, headTimeout)
	}
	l.Serve(listeners.HTTP(web, l.Socket))
}
