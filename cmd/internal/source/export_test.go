package source

import (
	"context"
	"database/sql"
	"time"
)

// NeverAsk makes Watch rely on notifications alone.
func (d *Database) NeverAsk() { d.poll = time.Hour }

// Doubt makes Watch read all rows again.
func (d *Database) Doubt() {
	d.doubt.Store(true)
	d.wake()
}

// Deafen makes Watch rely on polling alone.
func (d *Database) Deafen() { d.dialect = deaf{d.dialect} }

// Fill keeps an SQLite file from growing beyond its current size.
func (d *Database) Fill(ctx context.Context) error {
	_, err := d.write.ExecContext(ctx, "PRAGMA max_page_count = 1") // SQLite raises this to the current number of pages
	return err
}

// Query returns the texts that a query of SQLite selects.
func (d *Database) Query(ctx context.Context, query string, args ...any) (all []string, err error) {
	rows, err := d.read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

type deaf struct{ dialect }

func (deaf) follow(ctx context.Context, _ *sql.DB, _, _ func()) { <-ctx.Done() }
