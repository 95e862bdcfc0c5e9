package source

import (
	"context"
	"database/sql"
	"time"
)

// NeverAsk makes Watch look only when it is told of something.
func (d *Database) NeverAsk() { d.poll = time.Hour }

// Doubt makes Watch read everything again.
func (d *Database) Doubt() {
	d.doubt.Store(true)
	d.wake()
}

// Deafen makes Watch hear of nothing.
func (d *Database) Deafen() { d.dialect = deaf{d.dialect} }

// Fill leaves no room in a file of SQLite for more than it has.
func (d *Database) Fill(ctx context.Context) error {
	_, err := d.write.ExecContext(ctx, "PRAGMA max_page_count = 1") // which SQLite raises to what is there
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
