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
	"slices"
	"strings"
	"time"
)

// kind describes how rows of a type are stored. R is a struct with an embedded [Meta].
type kind[R any] struct {
	name  string // the name in the audit log, such as "rule"
	table string
	// columns has the columns to write, without those that every kind has. The first ones identify a row; their number
	// is key.
	key     int
	columns []string
	// selected has the columns that scan reads, without those that every kind has.
	selected string
	scan     func(*R) (into []any, finish func() error)
	// values returns the values of columns.
	values func(*R) ([]any, error)
	order  string // the order of lists, as columns; cmp compares in this order, or is nil to compare targets
	cmp    func(a, b *R) int
	meta   func(*R) *Meta
	target func(*R) string  // returns the identity of a row
	ident  func(*R) string  // returns a shorter text that also identifies a row; nil: use target
	check  func(*R) error   // returns an error if a row cannot be stored
	by     func(*R) *string // returns the author of a row; nil if the kind does not store authors
}

// author returns the author of a row, or "" if the kind does not store authors.
func (k *kind[R]) author(r *R) string {
	if k.by == nil {
		return ""
	}
	return *k.by(r)
}

// sign sets the author of a row that has none, if the kind stores authors.
func (k *kind[R]) sign(r *R, who string) {
	if k.by != nil {
		*k.by(r) = cmp.Or(*k.by(r), who)
	}
}

const metaColumns = ", version, updated_at, updated_by"

// timeLayout is a layout whose texts sort by time.
const timeLayout = "2006-01-02T15:04:05.000000Z"

func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// parseTime parses a time. It returns the zero time for an invalid text, which SQL may have written.
func parseTime(s string) time.Time {
	t, _ := time.Parse(time.RFC3339, s)
	return t.UTC()
}

// read returns the rows of a query, which must select the columns of selectAll.
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

// where returns the condition for the row with the key $1, $2, ….
func (k *kind[R]) where() string {
	conditions := make([]string, k.key)
	for i := range conditions {
		conditions[i] = fmt.Sprintf("%s = $%d", k.columns[i], i+1)
	}
	return " WHERE " + strings.Join(conditions, " AND ")
}

// find returns the row with the given key.
func (k *kind[R]) find(ctx context.Context, d *Database, q query, key []any) (r R, found bool, err error) {
	all, err := k.read(ctx, q, d.dialect.text(k.selectAll()+k.where()), key...)
	if err != nil || len(all) == 0 {
		return r, false, err
	}
	return all[0], true, nil
}

// insert adds rows with the given values.
func (k *kind[R]) insert(tx *Tx, rows [][]any) error {
	for i := range rows {
		rows[i] = append(rows[i], formatTime(tx.at), tx.actor)
	}
	return tx.insert(k.table, append(slices.Clone(k.columns), "updated_at", "updated_by"), rows)
}

// update replaces the row with the key in values.
func (k *kind[R]) update(tx *Tx, values []any) error {
	var sets []string
	for i, c := range append(slices.Clone(k.columns[k.key:]), "updated_at", "updated_by") {
		sets = append(sets, fmt.Sprintf("%s = $%d", c, k.key+i+1))
	}
	return tx.execute("UPDATE "+k.table+" SET "+strings.Join(sets, ", ")+k.where(), append(values, formatTime(tx.at), tx.actor)...)
}

// remove deletes the row with the given key.
func (k *kind[R]) remove(tx *Tx, key []any) error {
	return tx.execute("DELETE FROM "+k.table+k.where(), key...)
}

// decode decodes JSON strictly, so that a misspelled field that SQL has written is not ignored.
func decode(data []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("it cannot be read: unexpected text after the value")
	}
	return nil
}

// encode returns v as JSON for the database. Rows are compared by their JSON, because equal values have the same
// JSON.
func encode(v any) (string, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// number returns n as a column's value, which is NULL for 0.
func number(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: n != 0} }
