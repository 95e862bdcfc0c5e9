package source

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// Values of the field Source of rules, overrides and subjects.
const (
	FromFile     = "file"
	FromDatabase = "database"
)

// Merge returns the document of a file merged with the contents of a database; either may be nil. A rule of the
// database replaces the file's rule with the same name; other rules of the database follow the file's rules. An
// override replaces the file's override for the same rule and key, and a subject replaces the file's subject. The
// limits of a tier replace the limits that rules have for this tier, and a setting replaces the file's setting. The
// field Source of each rule, override and subject is set. Merge does not change its arguments.
func Merge(file *policy.Document, c *Contents) *policy.Document {
	return &merge(file, c).Document
}

// merged is a document with the origin of each part. A rule of the file keeps its index, even if a rule of the
// database replaces it.
type merged struct {
	policy.Document
	contents *Contents
}

func merge(file *policy.Document, c *Contents) *merged {
	if file == nil {
		file = &policy.Document{}
	}
	if c == nil {
		c = &Contents{}
	}
	m := &merged{Document: *file, contents: c}
	m.settings(&c.Settings.Document)
	m.mergeRules(file.Rules, c.Rules)
	m.mergeTiers(c.Tiers)
	m.mergeOverrides(file.Overrides, c.Overrides)
	m.mergeSubjects(file.Subjects, c.Subjects)
	return m
}

// settings replaces the file's settings with those of the document top. The whole policy is in shadow mode while
// the file or the database puts it into shadow mode, because the end of one setting must not end the other.
func (m *merged) settings(top *policy.Document) {
	if len(top.TrustedProxies) > 0 {
		m.TrustedProxies = top.TrustedProxies
	}
	m.IPv6Prefix = cmp.Or(top.IPv6Prefix, m.IPv6Prefix)
	m.IgnoreCase = m.IgnoreCase || top.IgnoreCase
	m.Shadow = policy.LongerShadow(top.Shadow, m.Shadow)
	m.Ambiguous = cmp.Or(top.Ambiguous, m.Ambiguous)
	m.BodyLimit = cmp.Or(top.BodyLimit, m.BodyLimit)
	m.Fields = cmp.Or(top.Fields, m.Fields)
	if len(top.CORS.Origins) > 0 {
		m.CORS = top.CORS
	}
	m.Lists = over(m.Lists, top.Lists)
	if len(top.Prices.Models) > 0 {
		m.Prices = policy.Prices{Models: over(m.Prices.Models, top.Prices.Models)}
	}
	m.Answers = over(m.Answers, top.Answers)
	m.Tiers = policy.Tiers{
		From:    cmp.Or(top.Tiers.From, m.Tiers.From),
		Subject: cmp.Or(top.Tiers.Subject, m.Tiers.Subject),
		Default: cmp.Or(top.Tiers.Default, m.Tiers.Default),
	}
}

// over returns a map with the entries of both maps. Entries of the map top take precedence. over does not change
// the maps.
func over[V any](under, top map[string]V) map[string]V {
	if len(top) == 0 {
		return under
	}
	all := make(map[string]V, len(under)+len(top))
	maps.Copy(all, under)
	maps.Copy(all, top)
	return all
}

func (m *merged) mergeRules(file []policy.Rule, rows []RuleRow) {
	m.Rules = slices.Clone(file)
	at := make(map[string]int, len(file))
	for i := range m.Rules {
		at[m.Rules[i].Name] = i
		m.Rules[i].Source = FromFile
	}
	for i := range rows {
		if rows[i].Disabled {
			continue
		}
		rule := rows[i].Rule
		rule.Source = FromDatabase
		if j, known := at[rule.Name]; known {
			m.Rules[j] = rule
			continue
		}
		m.Rules = append(m.Rules, rule)
	}
}

// mergeTiers sets the limits of tiers in rules. It skips limits for unknown rules, which strays reports.
func (m *merged) mergeTiers(rows []TierRow) {
	own := make(map[int]bool) // rules whose map has been copied
	at := m.ruleIndexes()
	for i := range rows {
		for rule, limits := range rows[i].Limits {
			j, known := at[rule]
			if !known {
				continue
			}
			if !own[j] {
				own[j] = true
				if m.Rules[j].Tiers = maps.Clone(m.Rules[j].Tiers); m.Rules[j].Tiers == nil {
					m.Rules[j].Tiers = make(map[string]policy.Limits)
				}
			}
			m.Rules[j].Tiers[rows[i].Name] = limits
		}
	}
}

func (m *merged) ruleIndexes() map[string]int {
	at := make(map[string]int, len(m.Rules))
	for i := range m.Rules {
		at[m.Rules[i].Name] = i
	}
	return at
}

// strays returns an error for each limit of a tier for an unknown rule.
func (m *merged) strays() (all policy.Errors) {
	at := m.ruleIndexes()
	for i := range m.contents.Tiers {
		t := &m.contents.Tiers[i]
		for _, rule := range slices.Sorted(maps.Keys(t.Limits)) {
			if _, known := at[rule]; !known {
				all = append(all, policy.Problem{
					Path: fmt.Sprintf("tiers[%q].limits[%q]", t.Name, rule), Message: fmt.Sprintf("the tier has a limit for the unknown rule %q", rule),
					Hint: "name a rule, or remove it",
				})
			}
		}
	}
	return all
}

func (m *merged) mergeOverrides(file []policy.Override, rows []OverrideRow) {
	m.Overrides = make([]policy.Override, len(file), len(file)+len(rows))
	at := make(map[string]int, len(file))
	for i := range file {
		at[overrideKey(&file[i])] = i
		m.Overrides[i] = file[i]
		m.Overrides[i].Source = FromFile
	}
	for i := range rows {
		o := rows[i].Override
		o.Source = FromDatabase
		if len(file) > 0 { // keys are needed only to find overrides of the file
			if j, known := at[overrideKey(&o)]; known {
				m.Overrides[j] = o
				continue
			}
		}
		m.Overrides = append(m.Overrides, o)
	}
}

func (m *merged) mergeSubjects(file []policy.TierSubject, rows []SubjectRow) {
	m.Subjects = make([]policy.TierSubject, len(file), len(file)+len(rows))
	at := make(map[string]int, len(file))
	for i := range file {
		at[file[i].Subject] = i
		m.Subjects[i] = file[i]
		m.Subjects[i].Source = FromFile
	}
	for i := range rows {
		s := rows[i].TierSubject
		s.Source = FromDatabase
		if j, known := at[s.Subject]; known {
			m.Subjects[j] = s
			continue
		}
		m.Subjects = append(m.Subjects, s)
	}
}

// overrideKey returns a text that is equal for overrides that apply to the same rule and subjects. It treats the
// value "*" of a key part like a missing part.
func overrideKey(o *policy.Override) string {
	named := maps.Clone(o.Key)
	maps.DeleteFunc(named, func(_, v string) bool { return v == "*" })
	key, _ := encode(named) // encoding cannot fail for a map of texts
	return o.Rule + " " + key
}

// origin converts a path in the merged document to the path in the file, or to a path that names a row of the
// database, such as rules["login"].limit, overrides[17].until, subjects["acme"].tier or
// tiers["pro"].limits["login"].
func (m *merged) origin(path string) (own string, inFile bool) {
	list, rest, _ := strings.Cut(path, "[")
	number, rest, found := strings.Cut(rest, "]")
	i, err := strconv.Atoi(number)
	if !found || err != nil {
		return path, m.contents.Settings.Version == 0
	}
	switch {
	case list == "rules" && i < len(m.Rules):
		r := &m.Rules[i]
		if tier, limits := m.ofTier(i, rest); tier != "" {
			return fmt.Sprintf("tiers[%q].limits[%q]%s", tier, r.Name, limits), false
		}
		if r.Source == FromDatabase {
			return fmt.Sprintf("rules[%q]%s", r.Name, rest), false
		}
	case list == "overrides" && i < len(m.Overrides) && m.Overrides[i].Source == FromDatabase:
		return fmt.Sprintf("overrides[%d]%s", m.rowID(&m.Overrides[i]), rest), false
	case list == "subjects" && i < len(m.Subjects) && m.Subjects[i].Source == FromDatabase:
		return fmt.Sprintf("subjects[%q]%s", m.Subjects[i].Subject, rest), false
	}
	return path, true
}

// rowID returns the ID of the row of an override in the database.
func (m *merged) rowID(o *policy.Override) int64 {
	rows := m.contents.Overrides
	i := slices.IndexFunc(rows, func(r OverrideRow) bool { return r.Rule == o.Rule && maps.Equal(r.Key, o.Key) })
	return rows[i].ID
}

// ofTier returns the tier in the database to which a path in a rule belongs, and the rest of the path. tier is ""
// for other paths.
func (m *merged) ofTier(rule int, path string) (tier, rest string) {
	quoted, isTier := strings.CutPrefix(path, ".tiers[")
	if !isTier {
		return "", ""
	}
	prefix, err := strconv.QuotedPrefix(quoted)
	if err != nil {
		return "", ""
	}
	name, _ := strconv.Unquote(prefix) // cannot fail for a quoted text
	for i := range m.contents.Tiers {
		if t := &m.contents.Tiers[i]; t.Name == name && t.Limits[m.Rules[rule].Name] != nil {
			return name, strings.TrimPrefix(quoted[len(prefix):], "]")
		}
	}
	return "", ""
}
