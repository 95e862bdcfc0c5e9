package console

import (
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Config is what the dashboard shows, and by what it acts. All but Find, Done and Version are
// needed.
type Config struct {
	// View returns what was seen until now. What it returned is not changed.
	View func() *telemetry.View
	// Find returns the key of a subject by its ID.
	Find   func(id string) (key string, found bool)
	Engine *policy.Engine
	// Identify finds out who sends a request by what it brings itself, such as a certificate or
	// an Authorization field, or that it comes from this machine. An error says that it does not.
	Identify func(*http.Request) (control.Caller, error)
	// SignIn returns whose token it is. It is asked again at every request of a session, so
	// that a token that is revoked takes its sessions along.
	SignIn func(token string) (control.Caller, error)
	// Do performs an operation of the admin API for a caller, in process. What match is not empty
	// for is sent as If-Match: an ETag, or "*".
	Do func(ctx context.Context, c control.Caller, method, path, match string, body []byte) (status int, answer []byte)
	// Done is closed when the server begins to end: pages that are kept up to date are let go.
	Done <-chan struct{}
	// Guess calls look, which looks at a token that comes from an address with a port. After too many
	// wrong ones it returns an error instead, which has a method RetrySeconds. Nil: they are not limited.
	Guess   func(from, token string, look func() (right, wrong bool)) error
	Version string
	Try     string // a command that sends a first request, or "" if there is none that is simple
	Logger  *slog.Logger
}

// server is a Config that answers.
type server struct {
	Config
	secret   [32]byte // makes the tokens of forms
	sessions sessions
	notices  notices
	origin   *http.CrossOriginProtection
	live     live
	known    *known
	history  history
}

// Handler answers everything below "/". Whoever mounts it checks the Host. Until Done is closed, it
// looks at the view in every step.
func Handler(c Config) http.Handler {
	if c.Guess == nil {
		c.Guess = func(_, _ string, look func() (bool, bool)) error {
			look()
			return nil
		}
	}
	s := &server{Config: c, origin: http.NewCrossOriginProtection(), known: newKnown()}
	_, _ = rand.Read(s.secret[:]) // never fails
	if c.Done != nil {
		go s.watch(c.Done)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /assets/{hash}/{file...}", serveAsset)
	mux.HandleFunc("GET /favicon.ico", favicon)
	mux.HandleFunc("GET /sign-in", s.signInPage)
	mux.HandleFunc("POST /sign-in", s.signIn)
	for _, r := range routes() {
		mux.Handle(r.pattern, s.admitted(r))
	}
	mux.Handle("/", s.admitted(route{role: source.Viewer, handle: (*server).nothingHere}))
	return secured(mux)
}
