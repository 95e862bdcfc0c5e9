package source

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

// Page says which part of a list is wanted.
type Page struct {
	After string // the cursor that the page before has come with; empty for the first
	Limit int    // at most so many rows; 0 is 100, and the most is 1000
}

func (p Page) limit() int {
	if p.Limit <= 0 {
		return defaultPage
	}
	return min(p.Limit, maxPage)
}

var errCursor = &Invalid{"cursor", "it is none that a list has returned: begin without one"}

// Settings returns the settings; those of Version 0 if there are none.
func (d *Database) Settings(ctx context.Context) (SettingsRow, error) {
	r, _, err := get(ctx, d, settingsKind, 1)
	return r, err
}

// Rule returns a rule. The error matches [ErrNotFound] if there is none, as those below.
func (d *Database) Rule(ctx context.Context, name string) (RuleRow, error) {
	return needed(ctx, d, ruleKind, name, name)
}

// Tier returns a tier.
func (d *Database) Tier(ctx context.Context, name string) (TierRow, error) {
	return needed(ctx, d, tierKind, name, name)
}

// Subject returns what is said of a subject.
func (d *Database) Subject(ctx context.Context, subject string) (SubjectRow, error) {
	return needed(ctx, d, subjectKind, subject, subject)
}

// Override returns the override of an ID.
func (d *Database) Override(ctx context.Context, id int64) (OverrideRow, error) {
	r, found, err := overrideKind.byID(ctx, d, d.read, id)
	return r, missing(d, overrideKind, strconv.FormatInt(id, 10), found, err)
}

// OverrideOf returns the override of a rule with that key.
func (d *Database) OverrideOf(ctx context.Context, rule string, key map[string]string) (OverrideRow, error) {
	text, err := encode(key)
	if err != nil {
		return OverrideRow{}, err
	}
	return needed(ctx, d, overrideKind, rule+" "+text, rule, text)
}

// Token returns a token.
func (d *Database) Token(ctx context.Context, name string) (TokenRow, error) {
	return needed(ctx, d, tokenKind, name, name)
}

// Rules returns a page of the rules by their positions, and the cursor of the next page, which is
// empty after the last: as do those below.
func (d *Database) Rules(ctx context.Context, p Page) ([]RuleRow, string, error) {
	s := newSelection(ruleKind.selectAll())
	if p.After != "" {
		position, name, _ := strings.Cut(p.After, ":")
		n, err := strconv.Atoi(position)
		if err != nil {
			return nil, "", errCursor
		}
		s.after("(position, name)", n, name)
	}
	return list(ctx, d, ruleKind, s, p, func(r *RuleRow) string { return fmt.Sprintf("%d:%s", r.Position, r.Name) })
}

// Tiers returns a page of the tiers by their names.
func (d *Database) Tiers(ctx context.Context, p Page) ([]TierRow, string, error) {
	return listByName(ctx, d, tierKind, newSelection(tierKind.selectAll()), p)
}

// SubjectQuery says which subjects are wanted: of what is not empty, those that have it.
type SubjectQuery struct {
	Tier string
	Page
}

// Subjects returns a page of the subjects in their order.
func (d *Database) Subjects(ctx context.Context, q SubjectQuery) ([]SubjectRow, string, error) {
	s := newSelection(subjectKind.selectAll())
	s.equal("tier", q.Tier)
	return listByName(ctx, d, subjectKind, s, q.Page)
}

// OverrideQuery says which overrides are wanted: of what is not empty, those that have it.
type OverrideQuery struct {
	Rule string
	Key  map[string]string // the whole key, but for parts that are "*"
	Page
}

// Overrides returns a page of the overrides by their IDs.
func (d *Database) Overrides(ctx context.Context, q OverrideQuery) ([]OverrideRow, string, error) {
	s := newSelection(overrideKind.selectAll())
	s.equal("rule", q.Rule)
	if kind, id := entity(q.Key); kind != "" {
		s.equal("entity_type", kind)
		s.equal("entity_id", id)
	}
	if q.After != "" {
		id, err := strconv.ParseInt(q.After, 10, 64)
		if err != nil {
			return nil, "", errCursor
		}
		s.where("id >", id)
	}
	return list(ctx, d, overrideKind, s, q.Page, func(r *OverrideRow) string { return strconv.FormatInt(r.ID, 10) })
}

// Tokens returns a page of the tokens by their names.
func (d *Database) Tokens(ctx context.Context, p Page) ([]TokenRow, string, error) {
	return listByName(ctx, d, tokenKind, newSelection(tokenKind.selectAll()), p)
}

func listByName[R any](ctx context.Context, d *Database, k *kind[R], s *selection, p Page) ([]R, string, error) {
	if p.After != "" {
		s.where(k.columns[0]+" >", p.After)
	}
	return list(ctx, d, k, s, p, k.target)
}

func list[R any](ctx context.Context, d *Database, k *kind[R], s *selection, p Page, cursor func(*R) string) ([]R, string, error) {
	if err := s.check(); err != nil {
		return nil, "", err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	all, err := k.read(ctx, d.read, d.dialect.text(s.text(k.order, p.limit()+1)), s.args...)
	if err != nil {
		return nil, "", d.away(err)
	}
	all, next := cut(all, p.limit(), cursor)
	return all, next, nil
}

// cut returns at most limit rows, and the cursor of the last if there are more.
func cut[R any](all []R, limit int, cursor func(*R) string) (page []R, next string) {
	if len(all) <= limit {
		return all, ""
	}
	return all[:limit], cursor(&all[limit-1])
}

func needed[R any](ctx context.Context, d *Database, k *kind[R], target string, key ...any) (R, error) {
	r, found, err := get(ctx, d, k, key...)
	return r, missing(d, k, target, found, err)
}

func missing[R any](d *Database, k *kind[R], target string, found bool, err error) error {
	switch {
	case err != nil:
		return err
	case !found:
		return notFound(k.name, target)
	}
	return nil
}

func get[R any](ctx context.Context, d *Database, k *kind[R], key ...any) (r R, found bool, err error) {
	for _, v := range key {
		if text, ok := v.(string); ok {
			if !isText(text) {
				return r, false, nil // there cannot be any
			}
		}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	r, found, err = k.find(ctx, d, d.read, key)
	return r, found, d.away(err)
}

// byID returns the row of an ID.
func (k *kind[R]) byID(ctx context.Context, d *Database, q query, id int64) (R, bool, error) {
	return k.first(ctx, q, d.dialect.text(k.selectAll()+" WHERE id = $1"), id)
}

// selection is a query with conditions that all have to hold.
type selection struct {
	start      string
	conditions []string
	args       []any
}

func newSelection(start string) *selection { return &selection{start: start} }

// where adds a condition, such as "id >", on a value.
func (s *selection) where(condition string, value any) {
	s.args = append(s.args, value)
	s.conditions = append(s.conditions, fmt.Sprintf("%s $%d", condition, len(s.args)))
}

// equal adds a condition on a column, if the value is not empty.
func (s *selection) equal(column, value string) {
	if value != "" {
		s.where(column+" =", value)
	}
}

// after adds the condition that a pair of columns is greater.
func (s *selection) after(columns string, a, b any) {
	s.args = append(s.args, a, b)
	s.conditions = append(s.conditions, fmt.Sprintf("%s > ($%d, $%d)", columns, len(s.args)-1, len(s.args)))
}

// check refuses values that no row can have.
func (s *selection) check() error {
	for _, v := range s.args {
		if text, ok := v.(string); ok && !isText(text) {
			return &Invalid{"query", notText}
		}
	}
	return nil
}

func (s *selection) text(order string, limit int) string {
	where := ""
	if len(s.conditions) > 0 {
		where = " WHERE " + strings.Join(s.conditions, " AND ")
	}
	return fmt.Sprintf("%s%s ORDER BY %s LIMIT %d", s.start, where, order, limit)
}
