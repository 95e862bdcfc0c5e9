// Package console has the pages for the browser: what is limited now, why, and what to do about it. It renders the
// values of package control, which it imports. Package server imports it. Pages are made on the server, work
// without JavaScript, and load nothing from other servers.
//
// # Adding a page
//
// A page is a [route] in the list of routes.go, a function that answers it, and a file in templates
// that defines "content":
//
//	{"GET /rules", source.Viewer, (*server).rules}
//
//	func (s *server) rules(c *call) error {
//		return s.show(c, http.StatusOK, "rules", page{Title: "Rules", Section: "rules", Data: c.policy.Document.Rules})
//	}
//
//	{{define "content"}}<h1>Rules</h1>{{range .Data}}…{{end}}{{end}}
//
// If the function returns a [control.Problem], the console shows a page about the problem. A template gets a
// [shown]: .Data is the Data of the page; .Operator and .Admin are the permissions of the caller, and templates
// leave out buttons that the caller may not use. Files with names that start with "_" are parts of all templates:
// see _parts.html for keys, times and forms.
//
// Changes are POSTs. Before the function is called, the server checks that one of its pages sent the form. The
// function ends with c.done, which redirects to a page with a notice and a button that undoes the change. An action
// has a page of its own at GET, which shows its effect, so that it works without JavaScript; console.js shows that
// page as a dialog if the link has data-dialog. The function of an action calls offer with the change; undo.go has the
// functions that undo changes.
//
// The Content-Security-Policy allows no style or script within a page, and no style attributes. Widths that depend
// on data are attributes of SVG. Templates show text from requests with {{key …}} or {{printable …}}: key isolates
// its direction from the text around it, and printable replaces characters that would change that direction.
package console
