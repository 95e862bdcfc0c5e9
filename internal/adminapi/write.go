package adminapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// difference is what a change would do, if it is dry.
type difference struct {
	DryRun bool            `json:"dry_run"`
	Before json.RawMessage `json:"before"` // null: it is not there
	After  json.RawMessage `json:"after"`
	// BeginsAnew are limits of which what was counted would no longer count.
	BeginsAnew []anew   `json:"begins_anew"`
	Warnings   []string `json:"warnings"` // about the item
}

type anew struct {
	Rule string `json:"rule"`
	From string `json:"from"`
	Was  string `json:"was"`
	Is   string `json:"is"`
}

// writing is a change of an item that is being made.
type writing struct {
	*resource
	id       string
	document any  // nil: it is to be deleted
	dry      bool // only look what would come of it
	// allowed says whether it may be made, by what is there.
	allowed func(Item, bool) error

	before   Item
	existed  bool
	after    Item
	examined *policy.Policy
	place    string // of the item in what was examined
}

// begin reads what a change says.
func (a *api) begin(r *resource, c *call, id string) (*writing, error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	w := &writing{resource: r, id: id}
	if w.dry, err = q.boolean("dry_run"); err != nil || c.Method == http.MethodDelete {
		return w, a.writable(err)
	}
	data, err := c.read()
	if err != nil {
		return nil, err
	}
	if w.document, err = r.decode(data); err != nil {
		return nil, err
	}
	own, field := identify(w.document, id)
	if id != "" && own != id {
		return nil, badField(field, "this is not the %s of the path, whose ID would be %s", r.kind, own)
	}
	w.id = own
	sign(w.document, c.actor)
	if err := a.writable(nil); err != nil {
		return nil, err
	}
	w.examined, w.place, err = r.examine(a, w.document)
	return w, err
}

// writable adds to err that there is no database.
func (a *api) writable(err error) error {
	if err == nil && a.Database == nil {
		return noDatabase()
	}
	return err
}

func (a *api) create(r *resource, c *call) (any, error) {
	w, err := a.begin(r, c, "")
	if err != nil {
		return nil, err
	}
	w.allowed = func(i Item, exists bool) error {
		if exists {
			return problemf(http.StatusConflict, "there is a %s of this name, in the %s: PUT %s replaces it", r.kind, i.source(), r.at(i.ID))
		}
		return nil
	}
	return a.write(c, w)
}

// at is the path of an item.
func (r *resource) at(id string) string { return r.path + "/" + url.PathEscape(id) }

func (a *api) replace(r *resource, c *call) (any, error) {
	if err := conditional(c); err != nil {
		return nil, err
	}
	w, err := a.begin(r, c, c.PathValue("id"))
	if err != nil {
		return nil, err
	}
	w.allowed = func(i Item, exists bool) error { return met(c, i, exists) }
	return a.write(c, w)
}

func (a *api) remove(r *resource, c *call) (any, error) {
	if err := conditional(c); err != nil {
		return nil, err
	}
	w, err := a.begin(r, c, c.PathValue("id"))
	if err != nil {
		return nil, err
	}
	w.allowed = func(i Item, exists bool) error {
		switch {
		case !exists:
			return missing(r.kind)
		case i.Version == 0:
			return problemf(http.StatusConflict, "this %s is in the policy file: remove it there, or replace it", r.kind)
		}
		return met(c, i, exists)
	}
	return a.write(c, w)
}

// conditional refuses changes that do not say of which state they are changes.
func conditional(c *call) error {
	match, none := c.Header.Get("If-Match"), c.Header.Get("If-None-Match")
	switch {
	case match == "" && (none == "" || c.Method == http.MethodDelete):
		p := problemf(http.StatusPreconditionRequired, "send the ETag that you have read as If-Match, so that nobody else's change is lost")
		if c.Method == http.MethodPut {
			p.Detail += ", or \"If-None-Match: *\" to create it"
		}
		p.Errors = []wrong{{Header: "If-Match", Detail: p.Detail}}
		return p
	case none != "" && none != "*":
		return &problem{Type: "about:blank", Title: http.StatusText(http.StatusBadRequest), Status: http.StatusBadRequest, Detail: "of If-None-Match only * has a meaning here", Errors: []wrong{{Header: "If-None-Match", Detail: "write *"}}}
	}
	return nil
}

// met refuses a change of another state than that which there is.
func met(c *call, i Item, exists bool) error {
	failed := func(format string, args ...any) error {
		return problemf(http.StatusPreconditionFailed, format, args...)
	}
	if c.Header.Get("If-None-Match") == "*" && exists {
		return failed("it exists, with the ETag %s: send that as If-Match to replace it", i.etag())
	}
	tags := etags(c.Header.Get("If-Match"))
	switch {
	case len(tags) == 0, exists && slices.Contains(tags, "*"), exists && slices.Contains(tags, i.etag()):
		return nil
	case !exists:
		return failed("it does not exist any more")
	}
	return failed("it has changed since you have read it, and its ETag is %s now: read it again", i.etag())
}

// write makes a change, or says what would come of it.
func (a *api) write(c *call, w *writing) (any, error) {
	err := a.Database.Change(c.Context(), c.actor, w.dry, func(tx Tx) error { return a.apply(tx, w) })
	if err != nil {
		return nil, w.explain(err)
	}
	if w.dry {
		return a.differs(w), nil
	}
	a.Logger.Info("admin API changed the policy", "actor", c.actor, "kind", string(w.kind), "deleted", w.document == nil, "version", w.after.Version)
	switch {
	case w.document == nil:
		return &reply{status: http.StatusNoContent}, nil
	case !w.existed:
		return &reply{status: http.StatusCreated, etag: w.after.etag(), location: w.at(w.id), body: w.after.Document}, nil
	}
	return &reply{etag: w.after.etag(), body: w.after.Document}, nil
}

// apply makes a change in a transaction.
func (a *api) apply(tx Tx, w *writing) (err error) {
	if w.before, w.existed, err = tx.Get(w.kind, w.id); err != nil {
		return err
	}
	if !w.existed {
		w.before, w.existed = a.inFile(w.kind, w.id)
	}
	if err := w.allowed(w.before, w.existed); err != nil {
		return err
	}
	if w.document == nil {
		return tx.Delete(w.kind, w.id)
	}
	w.after, err = tx.Put(w.kind, Item{ID: w.id, Document: w.document})
	return err
}

// inFile returns an item of the file.
func (a *api) inFile(kind Kind, id string) (Item, bool) {
	all := a.Current().fileItems(kind)
	i := slices.IndexFunc(all, func(i Item) bool { return i.ID == id })
	if i < 0 {
		return Item{}, false
	}
	return all[i], true
}

// explain says of what does not compile why that is.
func (w *writing) explain(err error) error {
	p := asProblem(err)
	if p == nil {
		return err
	}
	if p.Status == http.StatusUnprocessableEntity && w.document == nil {
		p.Detail = fmt.Sprintf("the policy would not hold together without this %s: %s", w.kind, p.Detail)
	}
	return p
}

// differs says what a change would do.
func (a *api) differs(w *writing) difference {
	d := difference{DryRun: true, Before: json.RawMessage("null"), After: json.RawMessage("null"), BeginsAnew: []anew{}, Warnings: []string{}}
	if w.existed {
		d.Before = encode(w.before.Document)
	}
	if w.document == nil {
		if i, shown := a.inFile(w.kind, w.id); shown {
			d.After = encode(i.Document)
		}
		return d
	}
	d.After = encode(w.document)
	for _, n := range w.examined.Anew(a.Engine.Policy()) {
		d.BeginsAnew = append(d.BeginsAnew, anew{n.Rule, n.From, n.Was, n.Is})
	}
	for _, warning := range w.examined.Warnings() {
		if _, ours := pointer(warning.Path, w.place); ours {
			d.Warnings = append(d.Warnings, described(warning))
		}
	}
	return d
}
