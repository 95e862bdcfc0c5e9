package console

import (
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// moreRoutes are all pages but the first.
var moreRoutes = slices.Concat([]route{
	{"GET /subjects", source.Viewer, (*server).subjects},
	{"GET /subjects/{id}", source.Viewer, (*server).subjectByIDPage},
	{"GET /key", source.Operator, (*server).keyPage},
	{"GET /rules", source.Viewer, (*server).rulesPage},
	{"GET /rules/{name}", source.Viewer, (*server).rulePage},
	{"GET /shadow", source.Viewer, (*server).shadowPage},
	{"GET /overrides", source.Viewer, (*server).overridesPage},
	{"GET /explain", source.Viewer, (*server).explainPage},
	{"POST /explain", source.Viewer, (*server).explainSaid},
	{"GET /audit", source.Viewer, (*server).auditPage},
	{"GET /policy", source.Viewer, (*server).policyPage},
	{"POST /policy/check", source.Admin, (*server).policyCheck},
	{"POST /policy/download", source.Admin, (*server).policyDownload},
	{"POST /policy/apply", source.Admin, (*server).policyApply},
}, actRoutes())
