package source

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// batch is the number of rows in one statement. Databases bound the parameters of a statement, and in SQLite's
// driver, the time per parameter grows with the number of parameters.
const batch = 100

// insertAll adds new, complete rows with their entries in the audit log, in a few statements. put would need four
// statements for each row, while other writers wait.
func insertAll[R any](tx *Tx, k *kind[R], rows []R) error {
	added := make(map[string]bool, len(rows))
	for some := range slices.Chunk(rows, batch) {
		all := make([][]any, len(some))
		for i := range some {
			if err := checkAll(k.name, reflect.ValueOf(some[i])); err != nil {
				return err
			}
			values, err := k.values(&some[i])
			if err != nil {
				return err
			}
			all[i] = values
			added[k.target(&some[i])] = true
		}
		if err := k.insert(tx, all); err != nil {
			return err
		}
	}
	if len(added) == 0 {
		return nil
	}
	text := k.selectAll() + " WHERE version > $1 ORDER BY " + k.order
	changed, err := k.read(tx.ctx, tx.tx, tx.d.dialect.text(text), tx.before.Version)
	if err != nil {
		return tx.failed(err)
	}
	return auditCreated(tx, k, slices.DeleteFunc(changed, func(r R) bool { return !added[k.target(&r)] }))
}

// auditCreated adds an entry to the audit log for each new row.
func auditCreated[R any](tx *Tx, k *kind[R], rows []R) error {
	for some := range slices.Chunk(rows, batch) {
		all := make([][]any, len(some))
		for i := range some {
			all[i] = tx.entry("create", k.name, k.target(&some[i]), nil, k.text(&some[i], true))
		}
		if err := tx.insert(auditTable, auditColumns, all); err != nil {
			return err
		}
	}
	return nil
}

// insert adds rows to a table in one statement.
func (tx *Tx) insert(table string, columns []string, rows [][]any) error {
	var text strings.Builder
	text.WriteString("INSERT INTO " + table + " (" + strings.Join(columns, ", ") + ") VALUES ")
	var args []any
	for i, row := range rows {
		if i > 0 {
			text.WriteString(", ")
		}
		marks := make([]string, len(row))
		for j := range row {
			marks[j] = fmt.Sprintf("$%d", len(args)+j+1)
		}
		text.WriteString("(" + strings.Join(marks, ", ") + ")")
		args = append(args, row...)
	}
	return tx.execute(text.String(), args...)
}
