package source

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy"
)

const (
	// maxText is the maximum length of a text in an indexed column, in bytes. Indexes do not accept longer texts.
	maxText = 2000
	// positionStep is the distance between the positions of appended rules. It leaves room for other rules.
	positionStep = 10
)

// PutSettings replaces the settings. The document must not have rules, overrides or subjects. It must contain its
// lists, prices and answers, and not name files for them, because files could differ between instances.
func (tx *Tx) PutSettings(doc policy.Document, match Match) (SettingsRow, error) {
	return put(tx, settingsKind, SettingsRow{Document: doc}, match, func(r, _ *SettingsRow, _ bool) error {
		d := &r.Document
		d.Rules, d.Overrides, d.Subjects = []policy.Rule{}, nil, nil // the JSON needs an empty list, not null
		return nil
	})
}

func (r *SettingsRow) check() error {
	doc := &r.Document
	switch {
	case len(doc.Rules) > 0:
		return &Invalid{"rules", "settings cannot contain rules: write each rule separately"}
	case len(doc.Overrides) > 0:
		return &Invalid{"overrides", "settings cannot contain overrides: write each override separately"}
	case len(doc.Subjects) > 0:
		return &Invalid{"subjects", "settings cannot contain subjects: write each subject separately"}
	}
	return checkFiles(doc)
}

// checkFiles returns an error if the document names files, because files could differ between instances.
func checkFiles(doc *policy.Document) error {
	for name, l := range doc.Lists {
		if l.File != "" {
			return &Invalid{fmt.Sprintf("lists[%q]", name), "write the networks: a file can differ between instances"}
		}
	}
	if doc.Prices.File != "" {
		return &Invalid{"prices", "write the prices: a file can differ between instances"}
	}
	for status, a := range doc.Answers {
		if a.File != "" || slices.ContainsFunc(a.Bodies, func(b policy.Body) bool { return b.File != "" }) {
			return &Invalid{fmt.Sprintf("answers[%q]", status), "write the body: a file can differ between instances"}
		}
	}
	return nil
}

// PutShadow puts the whole policy into shadow mode. The parameter shadow is the end of the shadow mode, or "always":
// see Shadow of a [policy.Document]. If it is empty, PutShadow removes the setting from the database. The other
// settings stay as they are.
func (tx *Tx) PutShadow(shadow string, match Match) error {
	now := &tx.before.Settings
	if match != Any && int64(match) != now.Version {
		return &Conflict{settingsKind.name, "shadow", now.Version}
	}
	doc := now.Document
	doc.Shadow, doc.Rules = shadow, nil
	switch {
	case !reflect.ValueOf(doc).IsZero():
		_, err := tx.PutSettings(doc, match)
		return err
	case now.Version > 0:
		return tx.DeleteSettings(match)
	}
	return nil
}

// DeleteSettings deletes all settings, so that the settings of the file or the defaults apply.
func (tx *Tx) DeleteSettings(match Match) error {
	return remove(tx, settingsKind, match, "", 1)
}

// PutRule creates or replaces the rule with the name of r.
func (tx *Tx) PutRule(r RuleRow, match Match) (RuleRow, error) {
	return put(tx, ruleKind, r, match, tx.setPosition)
}

// setPosition sets the position of a rule that has none. An existing rule keeps its position, and a new one comes
// after all others.
func (tx *Tx) setPosition(r, old *RuleRow, found bool) error {
	switch {
	case r.Position != 0:
	case found:
		r.Position = old.Position
	default:
		last, err := scalar(tx.ctx, tx.tx, "SELECT coalesce(max(position), 0) FROM sluice_rules")
		if err != nil {
			return tx.failed(err)
		}
		r.Position = int(last) + positionStep
	}
	return nil
}

func (r *RuleRow) check() error { return checkText("name", r.Name, true) }

// DeleteRule deletes a rule. Delete its overrides in the same transaction, because overrides without a rule are
// invalid.
func (tx *Tx) DeleteRule(name string, match Match) error {
	return remove(tx, ruleKind, match, name, name)
}

// PutTier creates or replaces the tier with the name of r.
func (tx *Tx) PutTier(r TierRow, match Match) (TierRow, error) {
	return put(tx, tierKind, r, match, nil)
}

func (r *TierRow) check() error { return checkTexts("name", r.Name, "description", r.Description) }

// DeleteTier deletes a tier, but not its subjects.
func (tx *Tx) DeleteTier(name string, match Match) error {
	return remove(tx, tierKind, match, name, name)
}

// PutSubject creates or replaces the row of a subject. If By is empty, it is set to the actor of [Database.Change].
func (tx *Tx) PutSubject(r SubjectRow, match Match) (SubjectRow, error) {
	return put(tx, subjectKind, r, match, nil)
}

func (r *SubjectRow) check() error {
	return checkTexts("subject", r.Subject, "tier", r.Tier, "reason", r.Reason, "by", r.By)
}

// DeleteSubject deletes the row of a subject.
func (tx *Tx) DeleteSubject(subject string, match Match) error {
	return remove(tx, subjectKind, match, subject, subject)
}

// PutOverride creates or replaces the override for the rule and the key of r. It ignores the fields ID and Name. If By
// is empty, it is set to the actor of [Database.Change].
func (tx *Tx) PutOverride(r OverrideRow, match Match) (OverrideRow, error) {
	return put(tx, overrideKind, r, match, nil)
}

func (r *OverrideRow) check() error {
	key, _ := encode(r.Key) // encoding cannot fail for a map of texts
	if err := checkTexts("rule", r.Rule, "key", key, "reason", r.Reason, "by", r.By); err != nil {
		return err
	}
	if r.Limit != "" && len(r.Limits) > 0 {
		return &Invalid{"limits", `write either "limit" or "limits"`}
	}
	if r.InFlight != 0 && (r.Limit != "" || len(r.Limits) > 0) {
		return &Invalid{"in_flight", "write either a limit or in_flight"}
	}
	return nil
}

// DeleteOverride deletes the override with the given name. The override must exist before the transaction.
func (tx *Tx) DeleteOverride(name string, match Match) error {
	rows := tx.before.Overrides
	i := slices.IndexFunc(rows, func(r OverrideRow) bool { return r.Name == name })
	if i < 0 {
		return notFound("override", name)
	}
	values, err := overrideKind.values(&rows[i])
	if err != nil {
		return err
	}
	return remove(tx, overrideKind, match, name, values[:overrideKind.key]...)
}

// CreateToken creates a token, and returns the secret for its bearer, which is not stored. The name must be new. The
// expiry is a text for [policy.ParseUntil]; if it is empty, the token never expires.
func (tx *Tx) CreateToken(name string, role Role, expiry string) (secret string, row TokenRow, err error) {
	secret, hash := newSecret()
	row, err = put(tx, tokenKind, TokenRow{Name: name, Role: role, Until: expiry, CreatedAt: tx.at, Hash: hash}, Absent, nil)
	return secret, row, err
}

func (t *TokenRow) check() error {
	if err := checkText("name", t.Name, true); err != nil {
		return err
	}
	if t.Role != Viewer && t.Role != Operator && t.Role != Admin {
		return &Invalid{"role", "use viewer, operator or admin"}
	}
	return checkUntil(t.Until)
}

// DeleteToken deletes a token. Instances reject it as soon as they notice the change.
func (tx *Tx) DeleteToken(name string, match Match) error {
	return remove(tx, tokenKind, match, name, name)
}

// checkTexts checks the texts of fields. pairs has the name and the text of each field. The first text must not be
// empty.
func checkTexts(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := checkText(pairs[i], pairs[i+1], i == 0); err != nil {
			return err
		}
	}
	return nil
}

// checkText returns an error for a text that one of the databases cannot store. If needed is true, it also returns an
// error for an empty text.
func checkText(field, text string, needed bool) error {
	switch {
	case needed && text == "":
		return &Invalid{field, "must not be empty"}
	case !isText(text):
		return &Invalid{field, notText}
	case len(text) > maxText:
		return &Invalid{field, fmt.Sprintf("the text has %d bytes: write at most %d", len(text), maxText)}
	}
	return nil
}

const notText = "the text must be UTF-8 without the character U+0000"

// isText reports whether every database can store a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// checkAll checks all texts in v, which is a row of a table or a part of one.
func checkAll(field string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if !isText(v.String()) {
			return &Invalid{field, notText}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if err := checkAll(cmp.Or(name, field), v.Field(i)); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			if err := checkAll(field, v.Index(i)); err != nil {
				return err
			}
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if err := errors.Join(checkAll(field, key), checkAll(field, v.MapIndex(key))); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkUntil returns an error for an invalid time of expiry.
func checkUntil(until string) error {
	if until == "" {
		return nil
	}
	if _, err := policy.ParseUntil(until); err != nil {
		return &Invalid{"until", strings.TrimPrefix(err.Error(), "policy: ")}
	}
	return nil
}
