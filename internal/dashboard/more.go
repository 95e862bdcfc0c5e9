package dashboard

import "slices"

// moreRoutes are all pages but the first.
var moreRoutes = slices.Concat([]route{
	{"GET /subjects", Viewer, (*server).subjects},
	{"GET /subjects/{id}", Viewer, (*server).subjectByIDPage},
	{"GET /key", Operator, (*server).keyPage},
	{"GET /rules", Viewer, (*server).rulesPage},
	{"GET /rules/{name}", Viewer, (*server).rulePage},
	{"GET /shadow", Viewer, (*server).shadowPage},
	{"GET /overrides", Viewer, (*server).overridesPage},
	{"GET /explain", Viewer, (*server).explainPage},
	{"POST /explain", Viewer, (*server).explainSaid},
	{"GET /audit", Viewer, (*server).auditPage},
	{"GET /policy", Viewer, (*server).policyPage},
	{"POST /policy/check", Admin, (*server).policyCheck},
	{"POST /policy/download", Admin, (*server).policyDownload},
	{"POST /policy/apply", Admin, (*server).policyApply},
}, actRoutes())
