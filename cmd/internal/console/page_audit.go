package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// auditRow is a row of the table of changes.
type auditRow struct {
	source.Entry
	Did     string // such as "created the override of"
	Target  string // as shown
	Whom    string // the subject that was changed, if any
	Changes []fieldChange
	More    int    // the number of changed fields that are not shown
	URL     string // the URL of the page about the target
}

type auditShown struct {
	Rows     []auditRow
	Next     string
	Older    bool // the page is not the first one
	Database bool
	Problem  *control.Problem
}

// auditPerPage is the number of entries on a page.
const auditPerPage = 50

func (s *server) auditPage(c *call) error {
	d := auditShown{Database: c.policy.Database}
	cursor := c.URL.Query().Get("cursor")
	if d.Older = cursor != ""; c.policy.Database {
		log, err := s.Control.Audit(c.Context(), c.caller, cursor, auditPerPage)
		if err != nil {
			if d.Problem, err = c.refusal(err); err != nil {
				return err
			}
			log = &control.AuditPage{}
		}
		for i := range log.Items {
			d.Rows = append(d.Rows, c.auditRow(&log.Items[i], policy.SecretPart(c.policy.Document.Tiers.Subject)))
		}
		if log.Next != "" {
			d.Next = "/audit?" + url.Values{"cursor": {log.Next}}.Encode()
		}
	}
	return s.show(c, http.StatusOK, "audit", pageOf("Audit log", "audit", d))
}

// auditRow returns the row of an entry. If secret is true, it shortens subjects of tiers.
func (c *call) auditRow(e *source.Entry, secret bool) auditRow {
	row := auditRow{Entry: *e, Target: e.Target}
	before, after := fieldsOf(e.Before), fieldsOf(e.After)
	switch e.Kind {
	case "override":
		was, is := c.veilKey(before, ""), c.veilKey(after, "")
		row.Target = cmp.Or(is, was)
	case "subject":
		if c.veilKey(after, e.Target); secret && changesItem(e.Action) {
			row.Target = policy.Shorten(e.Target)
			shortenSubject(before)
			shortenSubject(after)
		}
	case "rule":
		row.URL = rulePage(e.Target)
	case "rules":
		row.URL, before, after = "/policy", rulesByName(e.Before), rulesByName(e.After)
	case "alert":
		row.URL = "/"
	case "settings":
		row.URL, before, after = "/policy", inSettings(before), inSettings(after)
	}
	row.Did = didWords(e)
	for _, f := range diffFields(before, after) {
		switch {
		case len(row.Changes) == maxFields:
			row.More++
		case f.Field == "key" || f.Field == "shown":
			row.Whom = cmp.Or(f.After, f.Before)
		case !slices.Contains(rowFields, f.Field):
			row.Changes = append(row.Changes, f)
		}
	}
	if row.Whom == "" && e.Kind == "override" {
		row.Whom = cmp.Or(textOf(after["key"]), textOf(after["shown"]))
	}
	if row.Target != "" && row.URL == "" && (e.Kind == "override" || !changesItem(e.Action)) {
		row.URL = rulePage(row.Target)
	}
	return row
}

// maxFields is the maximum number of changed fields that an entry shows.
const maxFields = 200

// rulesByName returns the fields of a list of rules. The name of each field starts with the name of its rule.
func rulesByName(list source.Row) fields {
	var rows []fields
	if list.Decode(&rows) != nil {
		return nil
	}
	all := fields{}
	for _, row := range rows {
		name := textOf(row["name"])
		for field, value := range row {
			if field != "name" && !slices.Contains(rowFields, field) {
				all[name+"."+field] = value
			}
		}
	}
	return all
}

// auditWords describes the change of an entry, without the key of the subject.
func auditWords(e *source.Entry) string {
	name := e.Target
	switch {
	case e.Kind == "override":
		name = cmp.Or(textOf(fieldsOf(e.After)["rule"]), textOf(fieldsOf(e.Before)["rule"]))
	case e.Kind == "subject" && changesItem(e.Action):
		name = "a subject"
	}
	if name == "" {
		return didWords(e)
	}
	return didWords(e) + " " + printable(name)
}

// rowFields are fields of database rows that are not listed as changes: the entry shows them elsewhere, or only the
// database uses them.
var rowFields = []string{"id", "updated_at", "updated_by", "version", "by", "rule", "position"}

// didWords returns words for the change of an entry, to be followed by the name of the target.
func didWords(e *source.Entry) string {
	did := map[string]string{"create": "created", "replace": "changed", "delete": "removed"}[e.Action]
	switch {
	case e.Kind == "alert":
		return map[string]string{"silence": "silenced the alert", "unsilence": "ended the silence of"}[e.Action]
	case did == "" && e.Kind == "subject":
		return map[string]string{"reset": "reset", "refund": "gave back", "unblock": "unblocked", "block": "blocked"}[e.Action] + " under"
	case did == "":
		return e.Action + " " + e.Kind
	case e.Kind == "override":
		return did + " the override of"
	case e.Kind == "settings":
		return "changed the"
	case e.Kind == "subject":
		return did + " the tier of"
	}
	return did + " the " + e.Kind
}

// inSettings returns the fields of the document in a row of settings.
func inSettings(row fields) fields {
	document := fieldsOf(row["document"])
	delete(document, "rules") // the settings have no rules of their own
	return document
}

// veilKey replaces the key of a subject in a row with the key that may be shown. It returns the rule that the row
// names, or the given rule if the row does not name one.
func (c *call) veilKey(row fields, rule string) string {
	var key map[string]string
	if row["key"].Decode(&key) != nil {
		return rule
	}
	rule = cmp.Or(textOf(row["rule"]), rule)
	row["key"] = source.Row(control.JSON(c.shownOverride(rule, key)))
	return rule
}

// changesItem reports whether an action changes an item in the database. Other actions on subjects, such as a
// reset, have a rule as their target.
func changesItem(action string) bool {
	return action == "create" || action == "replace" || action == "delete"
}

// shortenSubject shortens the subject in a row of the table of tiers.
func shortenSubject(row fields) {
	if name := textOf(row["subject"]); name != "" {
		row["subject"] = source.Row(control.JSON(policy.Shorten(name)))
	}
}
