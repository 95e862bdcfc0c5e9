package console

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// route is a page or an act.
type route struct {
	pattern string      // a pattern of [http.ServeMux]
	role    source.Role // the role that the caller needs
	// handle writes the answer or returns an error. Before it is called for a POST, the server checks the request's
	// origin and parses the form.
	handle func(*server, *call) error
}

// liveRoute is the route of the stream of updates. Its requests last until the page is closed.
const liveRoute = "GET /live"

// routes returns all routes except those of assets and of the page to sign in.
func routes() []route {
	return slices.Concat([]route{
		{"GET /{$}", source.Viewer, (*server).first},
		{liveRoute, source.Viewer, (*server).stream},
		{"GET /subjects", source.Viewer, (*server).subjects},
		{"GET /subjects/{id}", source.Viewer, (*server).subjectByIDPage},
		{"GET /key", source.Operator, (*server).keyPage},
		{"GET /rules", source.Viewer, (*server).rulesPage},
		{"GET /rules/{name}", source.Viewer, (*server).rulePage},
		{"GET /budgets", source.Viewer, (*server).budgetsPage},
		{"GET /shadow", source.Viewer, (*server).shadowPage},
		{"GET /overrides", source.Viewer, (*server).overridesPage},
		{"GET /explain", source.Viewer, (*server).explainPage},
		{"POST /explain", source.Viewer, (*server).explainText},
		{"GET /audit", source.Viewer, (*server).auditPage},
		{"GET /policy", source.Viewer, (*server).policyPage},
		{"POST /policy/check", source.Admin, (*server).policyCheck},
		{"POST /policy/download", source.Admin, (*server).policyDownload},
		{"POST /policy/apply", source.Admin, (*server).policyApply},
		{"POST /sign-out", source.Viewer, (*server).signOut},
		{"POST /undo", source.Operator, (*server).undo},
	}, actRoutes())
}

func (s *server) nothingHere(c *call) error {
	return control.Problemf(http.StatusNotFound, "No page at %s.", printable(c.URL.Path))
}
