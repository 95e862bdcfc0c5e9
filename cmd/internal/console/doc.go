// Package console has the pages for the browser: what is limited now, why, and what to do about it. It imports
// package control, and renders its values. Package server imports it. Pages are made on the server, work without
// JavaScript, and load nothing from other servers.
//
// # Adding a page
//
// A page consists of a [route] in the list in routes.go, a function that answers the route, and a file in templates
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
// [shown]. Its .Data is the Data of the page; .Operator and .Admin are the permissions of the caller. Templates
// omit the buttons that the caller may not use. Files with names that start with "_" are parts of all templates:
// see _parts.html for keys, times and forms.
//
// Changes are POSTs. Before the function is called, the server checks that one of its pages sent the form. The
// function ends with c.done, which redirects to a page with a notice and a button that undoes the change. An action
// works without JavaScript, because GET shows its effect on a page of its own. If the link has data-dialog,
// console.js shows that page as a dialog. The function of an action calls offer with the change. undo.go has
// functions that undo changes.
//
// The Content-Security-Policy allows no style or script within a page, and no style attributes. Widths that depend
// on data are attributes of SVG. Templates show text from requests with {{key …}} or {{printable …}}. key keeps the
// direction of the text from affecting the text around it. printable replaces characters that would change the
// direction.
package console
