package adminapi

import (
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
)

// resource has the operations for a kind of items: on the list, and on one item.
type resource struct{ kind control.Kind }

// routes returns the operations of a resource.
func (r *resource) routes() []route {
	list, item := r.kind.Path(""), r.kind.Path("")+"/{id}"
	asked := "limit cursor"
	switch r.kind {
	case control.Subjects:
		asked += " rule key. id"
	case control.Overrides:
		asked += " rule key. q state sort"
	}
	return []route{
		{"GET", list, source.Viewer, asked, r.list},
		{"POST", list, r.kind.Role(), "dry_run", r.create},
		{"GET", item, source.Viewer, "", r.read},
		{"PUT", item, r.kind.Role(), "dry_run", r.replace},
		{"DELETE", item, r.kind.Role(), "dry_run", r.remove},
	}
}

func (r *resource) list(a *API, c *call) (any, error) {
	q := &c.query
	rule, err := q.rule()
	if err != nil {
		return nil, err
	}
	if r.kind == control.Subjects {
		if id, given := q.values["id"]; given {
			return subjectByID(a, c, id)
		}
		if rule != "" || len(q.key) > 0 {
			return a.Control.Subjects(c.Context(), c.who, rule, q.key)
		}
	}
	return a.Control.List(c.who, r.kind, control.Query{
		Cursor: q.values["cursor"], Limit: q.limit, Rule: rule, Key: q.key, Text: q.values["q"], State: q.values["state"], Sort: q.values["sort"],
	})
}

// subjectByID returns the limits of the subject with the given ID.
func subjectByID(a *API, c *call, id string) (any, error) {
	if len(c.query.values) > 1 || len(c.query.key) > 0 {
		return nil, control.BadParameter("id", "write either the ID, or a rule and a key")
	}
	return a.Control.SubjectByID(c.Context(), c.who, id)
}

func (r *resource) read(a *API, c *call) (any, error) {
	i, err := a.Control.Read(c.who, r.kind, c.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return &reply{etag: i.ETag, body: i.Document}, nil
}

func (r *resource) create(a *API, c *call) (any, error) {
	document, err := r.document(c)
	if err != nil {
		return nil, err
	}
	return r.written(a.Control.Create(c.Context(), c.who, document, c.query.dry))
}

func (r *resource) replace(a *API, c *call) (any, error) {
	change, err := c.change()
	if err != nil {
		return nil, err
	}
	document, err := r.document(c)
	if err != nil {
		return nil, err
	}
	return r.written(a.Control.Put(c.Context(), c.who, c.PathValue("id"), document, change))
}

func (r *resource) remove(a *API, c *call) (any, error) {
	change, err := c.change()
	if err != nil {
		return nil, err
	}
	return r.written(a.Control.Delete(c.Context(), c.who, r.kind, c.PathValue("id"), change))
}

// document decodes the body.
func (r *resource) document(c *call) (any, error) {
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	return decodeDocument(r.kind, data)
}

// written returns the answer for the result of a change.
func (r *resource) written(w *control.Written, err error) (any, error) {
	switch {
	case err != nil:
		return nil, err
	case w.Difference != nil:
		return w.Difference, nil
	case w.Document == nil:
		return &reply{status: http.StatusNoContent}, nil
	case w.Created:
		return &reply{status: http.StatusCreated, etag: w.ETag, location: r.kind.Path(w.ID), body: w.Document}, nil
	}
	return &reply{etag: w.ETag, body: w.Document}, nil
}

// change decodes the conditions of a change.
func (c *call) change() (control.Change, error) {
	match, none := c.Header.Get("If-Match"), c.Header.Get("If-None-Match")
	if none != "" && none != "*" && (match != "" || c.Method == http.MethodPut) {
		p := control.Problemf(http.StatusBadRequest, "If-None-Match must be *")
		p.Errors = []control.Wrong{{Header: "If-None-Match", Detail: p.Detail}}
		return control.Change{}, p
	}
	return control.Change{Dry: c.query.dry, Match: match, Absent: none == "*"}, nil
}
