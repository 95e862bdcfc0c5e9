package source

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// kind is how rows of a type are kept. R is a struct with [Meta] in it.
type kind[R any] struct {
	name  string // "rule", as the audit log has it
	table string
	// key are the columns by which a row is found, and columns all that are written, those of
	// the key first. Those that every row has are left out.
	key     int
	columns []string
	// selected are what scan reads, before the columns that every row has.
	selected string
	scan     func(*R) (into []any, finish func() error)
	// values are those of columns.
	values func(*R) ([]any, error)
	order  string // of lists, as columns, and cmp likewise
	cmp    func(a, b *R) int
	meta   func(*R) *Meta
	ident  func(*R) string // tells rows apart
	target func(*R) string // tells people so
}

const metaColumns = ", version, updated_at, updated_by"

// timeLayout sorts as text.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// parseTime returns the zero time for what is none: by SQL there may be anything.
func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t.UTC()
}

// read returns the rows of a query that selects what selectAll does.
func (k *kind[R]) read(ctx context.Context, q query, text string, args ...any) (all []R, err error) {
	rows, err := q.QueryContext(ctx, text, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r R
		into, finish := k.scan(&r)
		m := k.meta(&r)
		var at string
		if err := rows.Scan(append(into, &m.Version, &at, &m.UpdatedBy)...); err != nil {
			return nil, err
		}
		m.UpdatedAt = parseTime(at)
		if err := finish(); err != nil {
			m.fault = err.Error()
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

func (k *kind[R]) selectAll() string {
	return "SELECT " + k.selected + metaColumns + " FROM " + k.table
}

// find returns the row that r's key finds.
func (k *kind[R]) find(ctx context.Context, d *Database, q query, key []any) (r R, found bool, err error) {
	conditions := make([]string, k.key)
	for i := range conditions {
		conditions[i] = fmt.Sprintf("%s = $%d", k.columns[i], i+1)
	}
	return k.first(ctx, q, d.dialect.text(k.selectAll()+" WHERE "+strings.Join(conditions, " AND ")), key...)
}

func (k *kind[R]) first(ctx context.Context, q query, text string, args ...any) (r R, found bool, err error) {
	all, err := k.read(ctx, q, text, args...)
	if err != nil || len(all) == 0 {
		return r, false, err
	}
	return all[0], true, nil
}

// insert adds a row with these values.
func (k *kind[R]) insert(ctx context.Context, d *Database, q query, values []any, m *Meta) error {
	names := strings.Join(k.columns, ", ") + ", updated_at, updated_by"
	marks := make([]string, len(values)+2)
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	text := "INSERT INTO " + k.table + " (" + names + ") VALUES (" + strings.Join(marks, ", ") + ")"
	_, err := q.ExecContext(ctx, d.dialect.text(text), append(values, formatTime(m.UpdatedAt), m.UpdatedBy)...)
	return err
}

// update replaces the row of the key in values.
func (k *kind[R]) update(ctx context.Context, d *Database, q query, values []any, m *Meta) error {
	var sets, conditions []string
	for i, c := range k.columns {
		assign := fmt.Sprintf("%s = $%d", c, i+1)
		if i < k.key {
			conditions = append(conditions, assign)
		} else {
			sets = append(sets, assign)
		}
	}
	n := len(values)
	sets = append(sets, fmt.Sprintf("updated_at = $%d", n+1), fmt.Sprintf("updated_by = $%d", n+2))
	text := "UPDATE " + k.table + " SET " + strings.Join(sets, ", ") + " WHERE " + strings.Join(conditions, " AND ")
	_, err := q.ExecContext(ctx, d.dialect.text(text), append(values, formatTime(m.UpdatedAt), m.UpdatedBy)...)
	return err
}

// remove deletes the row of a key.
func (k *kind[R]) remove(ctx context.Context, d *Database, q query, key []any) error {
	conditions := make([]string, k.key)
	for i := range conditions {
		conditions[i] = fmt.Sprintf("%s = $%d", k.columns[i], i+1)
	}
	_, err := q.ExecContext(ctx, d.dialect.text("DELETE FROM "+k.table+" WHERE "+strings.Join(conditions, " AND ")), key...)
	return err
}

// decode reads JSON strictly: a field that is misspelled by SQL must not be nothing.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it cannot be read: there is something behind it")
	}
	return nil
}

// encode is JSON as it is kept, and by which rows are compared: the same for the same.
func encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// number is a value that may be left out.
func number(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }

// by compares by texts.
func by[R any](text func(*R) string) func(a, b *R) int {
	return func(a, b *R) int { return cmp.Compare(text(a), text(b)) }
}

// byID returns the row of an ID.
func (k *kind[R]) byID(ctx context.Context, d *Database, q query, id int64) (R, bool, error) {
	return k.first(ctx, q, d.dialect.text(k.selectAll()+" WHERE id = $1"), id)
}
