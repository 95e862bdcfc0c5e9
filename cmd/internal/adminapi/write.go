package adminapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// difference is what a change would do, if it is dry.
type difference struct {
	DryRun bool `json:"dry_run"`
	differs
}

// differs is an item before and after a change.
type differs struct {
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

	before   control.Item // as it is now
	exists   bool
	examined *policy.Policy
	place    string // of the item in what was examined
}

// begin reads what a change says, and looks at what is there.
func (a *API) begin(r *resource, c *call) (w *writing, err error) {
	q, err := c.query("dry_run")
	if err != nil {
		return nil, err
	}
	w = &writing{resource: r, id: c.PathValue("id")}
	if w.dry, err = q.boolean("dry_run"); err != nil {
		return nil, err
	}
	if c.Method != http.MethodDelete {
		if err := w.read(c); err != nil {
			return nil, err
		}
	}
	if a.Policy.Database == nil {
		return nil, noDatabase()
	}
	if _, named := seen(c); w.dry || r.kind == control.Rules || r.kind == control.Tiers || c.Method != http.MethodPost && !named {
		w.before, w.exists = a.lists.Find(a.Policy.Now(), r.kind, w.id)
	} else { // the database will say, and to make a list of many items takes a while
		w.before, w.exists = a.inFile(r.kind, w.id)
	}
	if w.document != nil {
		w.examined, w.place, err = r.examine(a, w.document)
	}
	return w, err
}

// read reads the document.
func (w *writing) read(c *call) error {
	data, err := c.read()
	if err != nil {
		return err
	}
	if hasNUL(data) {
		return problemf(http.StatusUnprocessableEntity, "the body has a character U+0000, which no database keeps")
	}
	if w.document, err = w.decode(data); err != nil {
		return err
	}
	own, field := identify(w.document, w.id)
	if own == "/" {
		return badField(field, "a path cannot name what is called \"/\": give it another name")
	}
	if w.id != "" && own != w.id {
		return badField(field, "this is not the %s of the path, whose ID would be %s", w.kind, own)
	}
	w.id = own
	sign(w.document, c.actor)
	return nil
}

// hasNUL reports whether a text in JSON has a U+0000.
func hasNUL(data []byte) bool {
	if !bytes.Contains(data, []byte(`\u0000`)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(data))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok && strings.ContainsRune(text, 0) {
			return true
		}
	}
}

func (a *API) create(r *resource, c *call) (any, error) {
	w, err := a.begin(r, c)
	if err != nil {
		return nil, err
	}
	there := func() error {
		return problemf(http.StatusConflict, "the %s is there already: PUT %s replaces it", r.kind, r.at(w.id))
	}
	if w.exists {
		return nil, there()
	}
	out, err := a.write(c, w, source.Absent)
	if conflicted(err) {
		return nil, there()
	}
	return out, err
}

// at is the path of an item.
func (r *resource) at(id string) string { return r.path + "/" + url.PathEscape(id) }

func (a *API) replace(r *resource, c *call) (any, error) {
	if err := conditional(c); err != nil {
		return nil, err
	}
	w, err := a.begin(r, c)
	if err != nil {
		return nil, err
	}
	return a.writeIf(c, w)
}

func (a *API) remove(r *resource, c *call) (any, error) {
	if err := conditional(c); err != nil {
		return nil, err
	}
	w, err := a.begin(r, c)
	switch {
	case err != nil:
		return nil, err
	case w.inFileAlone(c):
		return nil, problemf(http.StatusConflict, "the database has no such %s: remove it where it is, in the %s", r.kind, w.before.Source())
	}
	return a.writeIf(c, w)
}

// inFileAlone reports whether the item is not one of the database, as far as the caller knows.
func (w *writing) inFileAlone(c *call) bool {
	_, named := seen(c)
	return !named && w.exists && w.before.Version == 0
}

// writeIf makes a change if what is there is what the caller has seen. The database knows: what is
// known here may be older than what the caller has read of another instance.
func (a *API) writeIf(c *call, w *writing) (any, error) {
	match, named := seen(c)
	if !named {
		if err := w.met(c); err != nil {
			return nil, err
		}
		match = source.Match(w.before.Version) // or source.Absent
		if match > source.Absent && c.Header.Get("If-Match") == "*" {
			match = source.Any // also one that SQL has made unreadable, of which the last readable one is known here
		}
	}
	out, err := a.write(c, w, match)
	switch {
	case conflicted(err):
		return nil, problemf(http.StatusPreconditionFailed, "it has changed since you have read it: read it again")
	case errors.Is(err, source.ErrNotFound):
		return nil, missing(w.kind)
	}
	return out, err
}

// seen returns the version that If-Match names, if it names one of the database.
func seen(c *call) (source.Match, bool) {
	tags := etags(c.Header.Get("If-Match"))
	if len(tags) != 1 {
		return 0, false
	}
	return versionIn(tags[0])
}

// versionIn returns the version of a row that an ETag names, if it names one.
func versionIn(etag string) (source.Match, bool) {
	n, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	return source.Match(n), err == nil && n > 0 && etag == control.Quoted(strconv.FormatInt(n, 10))
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
		p := problemf(http.StatusBadRequest, "of If-None-Match only * has a meaning here")
		p.Errors = []wrong{{Header: "If-None-Match", Detail: p.Detail}}
		return p
	}
	return nil
}

// met refuses a change of another state than that which there is.
func (w *writing) met(c *call) error {
	i, exists := w.before, w.exists
	failed := func(format string, args ...any) error {
		return problemf(http.StatusPreconditionFailed, format, args...)
	}
	if c.Header.Get("If-None-Match") == "*" && exists {
		return failed("it exists, with the ETag %s: send that as If-Match to replace it", i.ETag())
	}
	tags := etags(c.Header.Get("If-Match"))
	switch {
	case len(tags) == 0, exists && slices.Contains(tags, "*"), exists && slices.Contains(tags, i.ETag()):
		return nil
	case !exists && c.Method == http.MethodDelete:
		return missing(w.kind)
	case !exists:
		return failed("it does not exist: send \"If-None-Match: *\" to create it")
	}
	return failed("it has changed since you have read it, and its ETag is %s now: read it again", i.ETag())
}

// logChange says in the log who has changed an item. What is deleted has no version.
func (a *API) logChange(c *call, kind control.Kind, deleted bool, version int64) {
	about := []any{"actor", c.actor, "kind", string(kind), "deleted", deleted}
	if !deleted {
		about = append(about, "version", version)
	}
	a.Logger.Info("admin API changed the policy", about...)
}

// write makes a change, or says what would come of it.
func (a *API) write(c *call, w *writing, match source.Match) (any, error) {
	after, err := a.apply(c, w, match)
	if err != nil {
		return nil, w.explain(err)
	}
	if w.dry {
		return a.differs(w), nil
	}
	a.logChange(c, w.kind, w.document == nil, after.Version)
	switch {
	case w.document == nil:
		return &reply{status: http.StatusNoContent}, nil
	case w.exists || match > source.Absent: // which is not known here yet
		return &reply{etag: after.ETag(), body: after.Document}, nil
	}
	return &reply{status: http.StatusCreated, etag: after.ETag(), location: w.at(w.id), body: after.Document}, nil
}

func (a *API) apply(c *call, w *writing, match source.Match) (control.Item, error) {
	if w.document == nil {
		return control.Item{}, a.Policy.Delete(c.Context(), c.actor, w.kind, w.id, match, w.dry)
	}
	return a.Policy.Put(c.Context(), c.actor, control.Item{ID: w.id, Document: w.document, Disabled: w.before.Disabled}, match, w.dry)
}

// inFile returns an item of the file.
func (a *API) inFile(kind control.Kind, id string) (control.Item, bool) {
	all := a.Policy.Now().FileItems(kind)
	i := slices.IndexFunc(all, func(i control.Item) bool { return i.ID == id })
	if i < 0 || kind == control.Tiers {
		return control.Item{}, false
	}
	return all[i], true
}

// explain says of what does not compile why that is.
func (w *writing) explain(err error) error {
	var found policy.Errors
	if w.document == nil && errors.As(err, &found) && len(found) > 0 {
		p := mistakes(found, "-")
		p.Detail = fmt.Sprintf("the policy would not hold together without this %s: %s", w.kind, p.Detail)
		return p
	}
	return err
}

// differs says what a change would do.
func (a *API) differs(w *writing) difference {
	d := difference{true, differs{Before: json.RawMessage("null"), After: json.RawMessage("null"), BeginsAnew: []anew{}, Warnings: []string{}}}
	if w.exists {
		d.Before = control.JSON(w.before.Document)
	}
	if w.document == nil {
		if i, shown := a.inFile(w.kind, w.id); shown {
			d.After = control.JSON(i.Document)
		}
		return d
	}
	d.After = control.JSON(w.document)
	for _, n := range w.examined.Restarts(a.Engine.Policy()) {
		d.BeginsAnew = append(d.BeginsAnew, anew{n.Rule, n.From, n.Was, n.Is})
	}
	for _, warning := range w.examined.Warnings() {
		if _, ours := pointer(warning.Path, w.place); ours {
			d.Warnings = append(d.Warnings, described(warning))
		}
	}
	return d
}
