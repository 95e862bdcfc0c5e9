package source

import (
	"cmp"
	"database/sql"
	"encoding/hex"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

var settingsKind = &kind[SettingsRow]{
	name: "settings", table: "sluice_settings", order: "id",
	key: 1, columns: []string{"id", "document"}, selected: "document",
	scan: func(r *SettingsRow) ([]any, func() error) {
		var doc []byte
		return []any{&doc}, func() error { return decode(doc, &r.Document) }
	},
	values: func(r *SettingsRow) ([]any, error) {
		doc, err := encode(r.Document)
		return []any{1, doc}, err
	},
	check:  (*SettingsRow).check,
	meta:   func(r *SettingsRow) *Meta { return &r.Meta },
	target: func(*SettingsRow) string { return "settings" },
}

var ruleKind = &kind[RuleRow]{
	name: "rule", table: "sluice_rules", order: "position, name",
	key: 1, columns: []string{"name", "position", "enabled", "document", "key_pattern", "requests_limit", "window_seconds", "tiers"},
	selected: "name, position, enabled, document",
	scan: func(r *RuleRow) ([]any, func() error) {
		var name string
		var doc []byte
		var enabled bool
		return []any{&name, &r.Position, &enabled, &doc}, func() error {
			err := decode(doc, &r.Rule)
			r.Name, r.Disabled = name, !enabled
			return err
		}
	},
	values: func(r *RuleRow) ([]any, error) {
		doc, err := encode(r.Rule)
		count, window := searched(r.LimitTexts())
		tiers := strings.Join(slices.Sorted(maps.Keys(r.Tiers)), ",")
		return []any{r.Name, r.Position, !r.Disabled, doc, strings.Join(r.Key, ","), count, window, tiers}, err
	},
	check: (*RuleRow).check,
	cmp: func(a, b *RuleRow) int {
		return cmp.Or(cmp.Compare(a.Position, b.Position), cmp.Compare(a.Name, b.Name))
	},
	meta:   func(r *RuleRow) *Meta { return &r.Meta },
	target: func(r *RuleRow) string { return r.Name },
}

var tierKind = &kind[TierRow]{
	name: "tier", table: "sluice_tiers", order: "name",
	key: 1, columns: []string{"name", "description", "limits"}, selected: "name, description, limits",
	scan: func(r *TierRow) ([]any, func() error) {
		var limits []byte
		return []any{&r.Name, &r.Description, &limits}, func() error { return decode(limits, &r.Limits) }
	},
	values: func(r *TierRow) ([]any, error) {
		limits := r.Limits
		if limits == nil {
			limits = map[string]policy.Limits{}
		}
		text, err := encode(limits)
		return []any{r.Name, r.Description, text}, err
	},
	check:  (*TierRow).check,
	meta:   func(r *TierRow) *Meta { return &r.Meta },
	target: func(r *TierRow) string { return r.Name },
}

var subjectKind = &kind[SubjectRow]{
	name: "subject", table: "sluice_subjects", order: "subject",
	key: 1, columns: []string{"subject", "tier", "expires_at", "reason", "made_by"}, selected: "subject, tier, expires_at, reason, made_by",
	scan: func(r *SubjectRow) ([]any, func() error) {
		return []any{&r.Subject, &r.Tier, &r.Until, &r.Reason, &r.By}, func() error { return nil }
	},
	values: func(r *SubjectRow) ([]any, error) {
		return []any{r.Subject, r.Tier, r.Until, r.Reason, r.By}, nil
	},
	check:  (*SubjectRow).check,
	by:     func(r *SubjectRow) *string { return &r.By },
	meta:   func(r *SubjectRow) *Meta { return &r.Meta },
	target: func(r *SubjectRow) string { return r.Subject },
}

var overrideKind = &kind[OverrideRow]{
	name: "override", table: "sluice_overrides", order: "id",
	key: 2, columns: []string{"rule", "key", "entity_type", "entity_id", "limits", "block", "exempt", "requests_limit", "window_seconds", "expires_at", "reason", "made_by"},
	selected: "id, rule, key, limits, block, exempt, expires_at, reason, made_by",
	scan: func(r *OverrideRow) ([]any, func() error) {
		var key, limits []byte
		return []any{&r.ID, &r.Rule, &key, &limits, &r.Block, &r.Exempt, &r.Until, &r.Reason, &r.By}, func() error {
			var all []string
			err := errors.Join(decode(key, &r.Key), decode(limits, &all))
			r.SetLimits(all)
			r.Name = OverrideName(r.Rule, r.Key)
			return err
		}
	},
	values: func(r *OverrideRow) ([]any, error) {
		key, err := encode(r.Key)
		all := append([]string{}, r.LimitTexts()...) // not null
		limits, err2 := encode(all)
		kind, id := entity(r.Key)
		count, window := searched(all)
		return []any{r.Rule, key, kind, id, limits, r.Block, r.Exempt, count, window, r.Until, r.Reason, r.By}, errors.Join(err, err2)
	},
	check: (*OverrideRow).check,
	by:    func(r *OverrideRow) *string { return &r.By },
	cmp:   func(a, b *OverrideRow) int { return cmp.Compare(a.ID, b.ID) },
	ident: func(r *OverrideRow) string { return strconv.FormatInt(r.ID, 10) },
	meta:  func(r *OverrideRow) *Meta { return &r.Meta },
	target: func(r *OverrideRow) string {
		key, _ := encode(r.Key) // cannot fail for a map of texts
		return r.Rule + " " + key
	},
}

var tokenKind = &kind[TokenRow]{
	name: "token", table: "sluice_tokens", order: "name",
	key: 1, columns: []string{"name", "hash", "role", "expires_at", "created_at"}, selected: "name, hash, role, expires_at, created_at",
	scan: func(r *TokenRow) ([]any, func() error) {
		var hash, role, created string
		return []any{&r.Name, &hash, &role, &r.Until, &created}, func() error {
			r.Role, r.CreatedAt = Role(role), parseTime(created)
			if sum, err := hex.DecodeString(hash); err != nil || copy(r.Hash[:], sum) != len(r.Hash) {
				return errors.New("the hash is not a SHA-256")
			}
			return checkUntil(r.Until)
		}
	},
	values: func(r *TokenRow) ([]any, error) {
		return []any{r.Name, r.Hash.String(), string(r.Role), r.Until, formatTime(r.CreatedAt)}, nil
	},
	check:  (*TokenRow).check,
	meta:   func(r *TokenRow) *Meta { return &r.Meta },
	target: func(r *TokenRow) string { return r.Name },
}

// searched returns the count and the window in seconds of a single limit, for columns that make limits searchable
// in SQL.
func searched(limits []string) (count sql.NullInt64, window sql.NullFloat64) {
	if len(limits) != 1 {
		return count, window
	}
	l, err := sluice.ParseLimit(limits[0])
	if err != nil {
		return count, window
	}
	if l.Money == 0 { // the count of a limit in USD is in micro-USD, and is not stored
		count = number(l.Count)
	}
	return count, sql.NullFloat64{Float64: l.Period.Seconds(), Valid: l.Period > 0 && l.MonthDay == 0}
}

// entity returns the names of a key's parts, and their values, such as "api_key" and "abc".
func entity(key map[string]string) (kind, id string) {
	var parts, values []string
	for _, part := range slices.Sorted(maps.Keys(key)) {
		if key[part] != "*" {
			parts, values = append(parts, part), append(values, key[part])
		}
	}
	return strings.Join(parts, ","), strings.Join(values, ",")
}
