// Package console has the pages for the browser: what is limited now, why, and what to do about it. It renders what
// package control returns. This package imports control, and package server imports this package. Pages are made on
// the server, work without JavaScript, and ask no other server.
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
// A [control.Problem] that the function returns becomes a page about it. A template gets a [shown]: .Data is the
// page's, .Operator and .Admin are the permissions of the caller, and buttons without permission are left out.
// Files with names that start with "_" are parts of all templates: see _parts.html for keys, times and forms.
//
// Changes are POSTs. Before the function is called, the server checks that one of its pages sent the form. The
// function ends with c.done, which leads to a page with a notice and a button that undoes the change. Each action
// has its own page at GET, which shows its effect, so it works without JavaScript. If a link has data-dialog,
// console.js shows that page as a dialog. The function of the action offers a change (see offer), and undo.go has
// the code that undoes changes.
//
// The Content-Security-Policy allows no style or script within a page, and no style attributes. Widths that depend
// on data are attributes of SVG. Templates show data from requests with {{key …}} or {{printable …}}, which replace
// control characters that would reverse the direction of the surrounding text.
package console
