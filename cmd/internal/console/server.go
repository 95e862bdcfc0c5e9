package console

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/telemetry"
)

// Config has the parts of a gateway that the console works on. Control, Access and Logger are required.
type Config struct {
	Control *control.Control
	// Access identifies callers. A session uses Access at every request, so that the session ends with its token.
	Access *access.Access
	// Done is closed when the server starts to drain. The streams that update pages then end.
	Done    <-chan struct{}
	Version string
	Try     string // a command that sends a first request, or "" if no simple command can
	Logger  *slog.Logger
}

// server is a running console.
type server struct {
	Config
	sessions sessions
	notices  notices
	origin   *http.CrossOriginProtection
	live     live
	known    known
	history  history
}

// Handler returns a handler for all paths. The caller has to check the Host. If Done is not nil, the console reads
// the counts once in each [telemetry.Step] until Done is closed, so that pages can show the past.
func Handler(c Config) http.Handler { return newServer(c).handler() }

func newServer(c Config) *server {
	s := &server{Config: c, origin: http.NewCrossOriginProtection()}
	if c.Done != nil {
		go s.watch(c.Done)
	}
	return s
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assets/{hash}/{file...}", serveAsset)
	mux.HandleFunc("GET /sign-in", s.signInPage)
	mux.HandleFunc("POST /sign-in", s.signIn)
	for _, r := range routes() {
		mux.Handle(r.pattern, s.admitted(r))
	}
	mux.Handle("/", s.admitted(route{role: source.Viewer, handle: (*server).nothingHere}))
	return secured(mux)
}

// view returns the counts up to now.
func (c *call) view() *telemetry.View {
	v, err := c.s.Control.View(c.caller)
	if err != nil || v.At.IsZero() { // no counts
		return &telemetry.View{At: time.Now()}
	}
	return v
}
