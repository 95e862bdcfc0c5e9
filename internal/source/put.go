package source

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy"
)

const (
	// maxText is the longest text that is searched by, in bytes: an index takes no more.
	maxText = 2000
	// positionStep leaves room between two rules.
	positionStep = 10
)

// PutSettings replaces the settings. Rules, overrides and subjects are put by themselves, and lists
// and answers have what is in their files: a file would be another one on each instance.
func (tx *Tx) PutSettings(doc policy.Document, match Match) (SettingsRow, error) {
	switch {
	case len(doc.Rules) > 0:
		return SettingsRow{}, &Invalid{"rules", "rules are put one by one"}
	case len(doc.Overrides) > 0:
		return SettingsRow{}, &Invalid{"overrides", "overrides are put one by one"}
	case len(doc.Subjects) > 0:
		return SettingsRow{}, &Invalid{"subjects", "subjects are put one by one"}
	}
	if err := checkFiles(&doc); err != nil {
		return SettingsRow{}, err
	}
	doc.Rules, doc.Overrides, doc.Subjects = []policy.Rule{}, nil, nil // not null, since none is required
	return put(tx, settingsKind, SettingsRow{Document: doc}, match, nil)
}

// checkFiles complains about what would be another file on each instance.
func checkFiles(doc *policy.Document) error {
	for name, l := range doc.Lists {
		if l.File != "" {
			return &Invalid{fmt.Sprintf("lists[%q]", name), "write the networks: a file would be another one on each instance"}
		}
	}
	for status, a := range doc.Answers {
		if a.File != "" || slices.ContainsFunc(a.Bodies, func(b policy.Body) bool { return b.File != "" }) {
			return &Invalid{fmt.Sprintf("answers[%q]", status), "write the body: a file would be another one on each instance"}
		}
	}
	return nil
}

// DeleteSettings leaves all settings at those of the file, or at their defaults.
func (tx *Tx) DeleteSettings(match Match) error {
	return remove(tx, settingsKind, match, "", 1)
}

// PutRule creates or replaces the rule of that name.
func (tx *Tx) PutRule(r RuleRow, match Match) (RuleRow, error) {
	if err := r.check(); err != nil {
		return r, err
	}
	return put(tx, ruleKind, r, match, func(r, old *RuleRow, found bool) error {
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
	})
}

func (r *RuleRow) check() error { return checkText("name", r.Name, true) }

// DeleteRule deletes a rule. Overrides that are left without their rule make no policy: delete
// them in the same transaction.
func (tx *Tx) DeleteRule(name string, match Match) error {
	return remove(tx, ruleKind, match, name, name)
}

// PutTier creates or replaces the tier of that name.
func (tx *Tx) PutTier(r TierRow, match Match) (TierRow, error) {
	if err := checkTexts("name", r.Name, "description", r.Description); err != nil {
		return r, err
	}
	return put(tx, tierKind, r, match, nil)
}

// DeleteTier deletes a tier. Its subjects are not.
func (tx *Tx) DeleteTier(name string, match Match) error {
	return remove(tx, tierKind, match, name, name)
}

// PutSubject creates or replaces what is said of that subject. Who made it is the actor, if By is
// empty.
func (tx *Tx) PutSubject(r SubjectRow, match Match) (SubjectRow, error) {
	if err := r.check(); err != nil {
		return r, err
	}
	return put(tx, subjectKind, r, match, func(r, _ *SubjectRow, _ bool) error {
		if r.By == "" {
			r.By = tx.actor
		}
		return nil
	})
}

func (r *SubjectRow) check() error {
	return checkTexts("subject", r.Subject, "tier", r.Tier, "reason", r.Reason, "by", r.By)
}

// DeleteSubject deletes what is said of a subject.
func (tx *Tx) DeleteSubject(subject string, match Match) error {
	return remove(tx, subjectKind, match, subject, subject)
}

// PutOverride creates or replaces the override of that rule and key, whatever its ID. Who made it
// is the actor, if By is empty.
func (tx *Tx) PutOverride(r OverrideRow, match Match) (OverrideRow, error) {
	if err := r.check(); err != nil {
		return r, err
	}
	return put(tx, overrideKind, r, match, func(r, old *OverrideRow, found bool) error {
		return maker(tx, overrideKind, r, &r.By, found, old, old.By)
	})
}

func (r *OverrideRow) check() error {
	key, _ := encode(r.Key) // a map of texts
	if err := checkTexts("rule", r.Rule, "key", key, "reason", r.Reason, "by", r.By); err != nil {
		return err
	}
	if r.Limit != "" && len(r.Limits) > 0 {
		return &Invalid{"limits", `write "limit" or "limits", and not both`}
	}
	return nil
}

// maker fills in who made a row, if that is empty: whoever did, if nothing else changes, and else
// the actor.
func maker[R any](tx *Tx, k *kind[R], r *R, by *string, found bool, old *R, did string) error {
	if *by != "" {
		return nil
	}
	*by = did
	if values, err := k.values(r); err != nil || found && k.same(old, values) {
		return err
	}
	*by = tx.actor
	return nil
}

// DeleteOverride deletes the override of that ID.
func (tx *Tx) DeleteOverride(id int64, match Match) error {
	target := strconv.FormatInt(id, 10)
	if tx.err != nil {
		return tx.err
	}
	r, found, err := overrideKind.byID(tx.ctx, tx.d, tx.tx, id)
	if err != nil {
		return tx.failed(err)
	}
	if !found {
		return notFound("override", target)
	}
	values, err := overrideKind.values(&r)
	if err != nil {
		return err
	}
	return remove(tx, overrideKind, match, target, values[:overrideKind.key]...)
}

// CreateToken makes a token, and returns the secret that its bearer has to have, which is kept
// nowhere. There must be none of that name. For until see
// [policy.ParseUntil]; if it is empty, the token never ends.
func (tx *Tx) CreateToken(name string, role Role, until string) (secret string, row TokenRow, err error) {
	if err := checkText("name", name, true); err != nil {
		return "", row, err
	}
	if role != Viewer && role != Operator && role != Admin {
		return "", row, &Invalid{"role", "use viewer, operator or admin"}
	}
	if err := checkUntil(until); err != nil {
		return "", row, err
	}
	secret, hash := newSecret()
	row, err = put(tx, tokenKind, TokenRow{Name: name, Role: role, Until: until, CreatedAt: tx.at, hash: hash}, Absent, nil)
	return secret, row, err
}

// DeleteToken deletes a token: instances refuse it as soon as they have heard of it.
func (tx *Tx) DeleteToken(name string, match Match) error {
	return remove(tx, tokenKind, match, name, name)
}

// checkTexts checks pairs of the name of a field and its text. The first must not be empty.
func checkTexts(pairs ...string) error {
	for i := 0; i < len(pairs); i += 2 {
		if err := checkText(pairs[i], pairs[i+1], i == 0); err != nil {
			return err
		}
	}
	return nil
}

// checkText refuses what one of the databases could not keep.
func checkText(field, text string, needed bool) error {
	switch {
	case needed && text == "":
		return &Invalid{field, "it is empty: write something"}
	case !isText(text):
		return &Invalid{field, notText}
	case len(text) > maxText:
		return &Invalid{field, fmt.Sprintf("it has %d bytes: write at most %d", len(text), maxText)}
	}
	return nil
}

const notText = "it is not text in UTF-8: write it so, without the character U+0000"

// isText reports whether every database can keep a text.
func isText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }

// checkAll checks all texts in a row.
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

// checkUntil complains about what says of nothing when it ends.
func checkUntil(until string) error {
	if until == "" {
		return nil
	}
	if _, err := policy.ParseUntil(until); err != nil {
		return &Invalid{"until", strings.TrimPrefix(err.Error(), "policy: ")}
	}
	return nil
}
