package console

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// route is a page, or an act.
type route struct {
	pattern string      // as of [http.ServeMux]
	role    source.Role // that it needs
	// handle writes the answer, or says what is wrong. Where it changes something, where the
	// request is from has been checked, and its form is parsed.
	handle func(*server, *call) error
}

// routes returns all that there are but the assets and signing in.
func routes() []route {
	return slices.Concat(firstRoutes, moreRoutes, []route{
		{"POST /sign-out", source.Viewer, (*server).signOut},
		{"POST /undo", source.Operator, (*server).undo},
	})
}

var firstRoutes = []route{
	{"GET /{$}", source.Viewer, (*server).first},
	{"GET /live", source.Viewer, (*server).stream},
}

func (s *server) nothingHere(c *call) error {
	return problemf(http.StatusNotFound, "There is no page at %s.", printable(c.URL.Path))
}
