// Package dashboard is the console in a browser: what is limited now, why, and what to do about it.
// It is made on the server from a [telemetry.View], reads without JavaScript, and asks nobody but
// the server that it came from.
//
// # Adding a page
//
// A page is a [route] in a list of routes.go, a function that answers it, and a file in templates
// that defines "content":
//
//	{"GET /rules", source.Viewer, (*server).rules}
//
//	func (s *server) rules(c *call) error {
//		var list rulesAnswer
//		if err := c.do("GET", "/v1/rules", nil, &list); err != nil {
//			return err // a *refusal or problemf(…) becomes a page that says so
//		}
//		return s.show(c, http.StatusOK, "rules", page{Title: "Rules", Section: "rules", Data: list})
//	}
//
//	{{define "content"}}<h1>Rules</h1>{{range .Data.Items}}…{{end}}{{end}}
//
// A template gets a [shown]: .Data is the page's, .Operator and .Admin say what the caller may do,
// and buttons that he may not use are left out. Files whose names begin with "_" are parts that all
// templates have: see _parts.html for keys, times and forms.
//
// What changes something is a POST. Its form has {{template "csrf" $}}, which is checked before
// the function is called, and it ends with c.done, which leads to a page that says what was done,
// with a button that undoes it. An act has a page of its own at GET, with its effect, so that it
// works without JavaScript; console.js shows that page as a dialog where a link has data-dialog.
//
// The Content-Security-Policy allows no style or script within a page, and no style attributes. Widths that
// depend on data are attributes of SVG. What comes from a request is shown by {{key …}} or
// {{printable …}}, which make marks visible that would turn the text around it.
package console
