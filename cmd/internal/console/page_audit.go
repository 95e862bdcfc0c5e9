package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// auditRow is a change that somebody has made.
type auditRow struct {
	auditEntry
	Did     string // "created the override of"
	Target  string // for people
	Whom    string // the subject that it is about, if any
	Changes []fieldChange
	More    int    // changes that are not shown
	URL     string // of what it is about
}

type auditShown struct {
	Rows     []auditRow
	Next     string
	Older    bool // this is not the first page
	Database bool
	Problem  *problem
}

func (s *server) auditPage(c *call) error {
	p, err := c.policyInForce()
	if err != nil {
		return err
	}
	d := auditShown{Database: p.Database}
	cursor := c.URL.Query().Get("cursor")
	if d.Older = cursor != ""; p.Database {
		var log struct {
			Items []auditEntry `json:"items"`
			Next  string       `json:"next"`
		}
		q := url.Values{"limit": {"50"}}
		if cursor != "" {
			q.Set("cursor", cursor)
		}
		err := c.do("GET", "/v1/audit?"+q.Encode(), nil, &log)
		if d.Problem, err = asProblem(err); err != nil {
			return err
		}
		for i := range log.Items {
			d.Rows = append(d.Rows, s.auditRow(&log.Items[i], policy.SecretPart(p.Document.Tiers.Subject)))
		}
		if log.Next != "" {
			d.Next = "/audit?" + url.Values{"cursor": {log.Next}}.Encode()
		}
	}
	return s.show(c, http.StatusOK, "audit", pageOf("Audit log", "audit", d))
}

// auditRow makes an entry readable. Who is in which tier is shortened if that is named by a secret.
func (s *server) auditRow(e *auditEntry, secret bool) auditRow {
	row := auditRow{auditEntry: *e, Target: e.Target}
	before, after := e.Before, e.After
	switch e.Kind {
	case "override":
		rule := ""
		before, _ = s.veiled(e.Before, "")
		after, rule = s.veiled(e.After, "")
		if rule == "" {
			_, rule = s.veiled(e.Before, "")
		}
		row.Target = rule
	case "subject":
		if after, _ = s.veiled(e.After, e.Target); secret && changesItem(e.Action) {
			row.Target = policy.Shorten(e.Target)
			before, after = shortSubject(e.Before), shortSubject(e.After)
		}
	case "rule":
		row.URL = rulePage(e.Target)
	case "rules":
		row.URL, before, after = "/policy", rulesByName(e.Before), rulesByName(e.After)
	case "alert":
		row.URL = "/"
	case "settings":
		row.URL, before, after = "/policy", inSettings(e.Before), inSettings(e.After)
	}
	row.Did = didWords(e)
	for _, f := range diffJSON(before, after) {
		switch {
		case len(row.Changes) == maxFields:
			row.More++
		case f.Field == "key" || f.Field == "shown":
			row.Whom = f.After
			if f.After == "" {
				row.Whom = f.Before
			}
		case !slices.Contains(rowFields, f.Field):
			row.Changes = append(row.Changes, f)
		}
	}
	if row.Whom == "" && e.Kind == "override" {
		row.Whom = keyIn(after)
	}
	if row.Target != "" && row.URL == "" && (e.Kind == "override" || !changesItem(e.Action)) {
		row.URL = rulePage(row.Target)
	}
	return row
}

// maxFields is how many fields of one entry are shown.
const maxFields = 200

// rulesByName is a list of rows of rules as an object of their documents.
func rulesByName(data json.RawMessage) json.RawMessage {
	var rows []map[string]json.RawMessage
	if json.Unmarshal(data, &rows) != nil {
		return nil
	}
	all := map[string]map[string]json.RawMessage{}
	for _, row := range rows {
		var name string
		_ = json.Unmarshal(row["name"], &name) // a text
		for _, field := range append(rowFields, "name") {
			delete(row, field)
		}
		all[name] = row
	}
	data, _ = json.Marshal(all) // what was read
	return data
}

// rowFields are fields that a database keeps of each row, which the entry says itself.
var rowFields = []string{"id", "updated_at", "updated_by", "version", "by", "rule", "position"}

// didWords is what was done, before the name of what it was done to.
func didWords(e *auditEntry) string {
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

// inSettings is the document in a row of the settings.
func inSettings(data json.RawMessage) json.RawMessage {
	var row struct{ Document map[string]json.RawMessage }
	if json.Unmarshal(data, &row) != nil || row.Document == nil {
		return nil
	}
	delete(row.Document, "rules") // there are none in it
	document, _ := json.Marshal(row.Document)
	return document
}

// keyIn is the key in a document that was veiled.
func keyIn(data json.RawMessage) (key string) {
	var fields struct{ Key, Shown string }
	if json.Unmarshal(data, &fields) == nil { // another kind has none
		key = cmp.Or(fields.Key, fields.Shown)
	}
	return key
}

// veiled is a document with the key of a subject as it may be shown. It returns the rule, too.
func (s *server) veiled(data json.RawMessage, rule string) (json.RawMessage, string) {
	var o policy.Override
	var fields map[string]json.RawMessage
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["key"], &o.Key) != nil {
		return data, rule
	}
	if _, has := fields["rule"]; has {
		_ = json.Unmarshal(fields["rule"], &rule) // a text, or there is no rule of that name
	}
	fields["key"], _ = json.Marshal(s.shownOverride(rule, o.Key)) // a text always can be
	veiled, err := json.Marshal(fields)
	if err != nil {
		return nil, rule
	}
	return veiled, rule
}

// changesItem reports whether an action is a change of what the database keeps. Others are acts on
// what was counted, whose target is a rule.
func changesItem(action string) bool {
	return action == "create" || action == "replace" || action == "delete"
}

// shortSubject is who is in which tier, with the name shortened.
func shortSubject(data json.RawMessage) json.RawMessage {
	var fields map[string]json.RawMessage
	var name string
	if json.Unmarshal(data, &fields) != nil || json.Unmarshal(fields["subject"], &name) != nil {
		return data
	}
	fields["subject"], _ = json.Marshal(policy.Shorten(name)) // a text always can be
	short, err := json.Marshal(fields)
	if err != nil {
		return nil
	}
	return short
}
