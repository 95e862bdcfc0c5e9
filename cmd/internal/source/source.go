// Package source stores policies in an SQLite or PostgreSQL database. Any number of instances may follow the
// database.
//
//	db, err := source.Open("sqlite:rules.db", log)
//	_, err = db.Migrate(ctx)
//	contents, err := db.Read(ctx)
//	stack := &source.Stack{Name: db.String(), Swap: engine.Swap}
//	err = stack.Contents(contents)
//	go db.Watch(ctx, func(c *source.Contents) { err := stack.Contents(c); … })
//
// The database has rules, tiers, subjects, overrides, settings (the rest of a document) and the tokens of the admin
// API. [Database.Change] changes rows in one transaction, with entries in the audit log, and rejects an invalid
// policy. Every row has the version of its last change. With this version as a [Match], a caller cannot
// overwrite a change that it has not seen. Instances also follow changes by SQL, but the audit log has no entries
// for these.
//
// A [Stack] merges a database with a policy file.
package source

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// callTimeout bounds the calls of callers without a deadline, so that a database that hangs is treated as
	// unavailable. It is long enough for a thousand waiting writers.
	callTimeout = 30 * time.Second
	// lookTimeout bounds a check for changes.
	lookTimeout = 2 * time.Second
	// poll is the interval of checks for changes without notifications.
	poll = 500 * time.Millisecond
)

var (
	// ErrUnavailable is matched by errors of a database that does not answer or returns an error.
	ErrUnavailable = errors.New("the rules database failed")
	// ErrUnconfirmed is matched by errors of a failed commit. The change may have been made nevertheless: read the
	// contents, or repeat the change with a [Match]. Such errors also match ErrUnavailable.
	ErrUnconfirmed error = unavailableError("the rules database did not confirm the change")
	// ErrFull is matched by errors of a database on a full disk. Nothing was changed. Such errors also match
	// ErrUnavailable.
	ErrFull error = unavailableError("the disk of the rules database is full")
	// ErrNotMigrated is matched by errors about missing tables.
	ErrNotMigrated = errors.New(`the database has no tables of Sluice: run "sluice migrate"`)
	// ErrNotFound is matched by errors about a missing row.
	ErrNotFound = errors.New("not found")
)

// unavailableError is an error with its own text that matches [ErrUnavailable].
type unavailableError string

func (e unavailableError) Error() string      { return string(e) }
func (unavailableError) Is(target error) bool { return target == ErrUnavailable }

// Database is an open database. It is safe for concurrent use.
type Database struct {
	// Check is called before a change is committed. If it returns an error, the change is refused. [Open] sets
	// Check to compile the contents alone. If a policy file is also used, set it to [Stack.Check] before the first
	// change.
	Check func(*Contents) error

	name        string
	dialect     dialect
	read, write *sql.DB
	log         *slog.Logger

	known  atomic.Pointer[Contents] // the latest contents that were read or committed
	handed atomic.Pointer[Contents] // the latest result of Read or Watch
	doubt  atomic.Bool              // Database.known may contain commits that the database has lost
	wakes  chan struct{}            // signals that something may have changed
	poll   time.Duration

	following sync.Mutex // guards status
	status    Status
}

// dialect has the differences between databases.
type dialect interface {
	// open opens connections for reading and for writing. Both may be the same.
	open() (read, write *sql.DB, err error)
	// migrate brings the tables up to date, and returns the number of steps.
	migrate(ctx context.Context, write *sql.DB) (int, error)
	// text converts a query with the parameters $1, $2, … to the form of the database.
	text(query string) string
	// lock returns a clause for the query that reads the version. With this clause, transactions with changes run
	// one after the other.
	lock() string
	// follow calls the function wake when something may have changed, and the function lost when it may have missed
	// changes. It returns when ctx ends.
	follow(ctx context.Context, read *sql.DB, wake, lost func())
	// unmigrated reports whether an error is about a missing table.
	unmigrated(error) bool
	// full reports whether an error is about a full disk.
	full(error) bool
}

// Open opens a database: "sqlite:FILE", "postgres://user@host/name". [Database.Migrate] and [Database.Read] connect
// to it. If log is nil, slog.Default() is used.
func Open(url string, log *slog.Logger) (*Database, error) {
	d := &Database{log: cmp.Or(log, slog.Default()), wakes: make(chan struct{}, 1), poll: poll}
	scheme, rest, _ := strings.Cut(url, ":")
	var err error
	switch scheme {
	case "sqlite":
		d.dialect, d.name, err = newSQLite(rest)
		d.poll = filePoll
	case "postgres", "postgresql":
		d.dialect, d.name, err = newPostgres(url, d.log)
	default:
		err = errors.New("write it as in sqlite:rules.db or postgres://user@host/name")
	}
	if err == nil {
		d.read, d.write, err = d.dialect.open()
	}
	if err != nil {
		return nil, err
	}
	d.Check = (&Stack{Name: d.name}).Check
	return d, nil
}

// String returns the URL without secrets.
func (d *Database) String() string { return d.name }

// Close closes the connections. Call it after Watch has returned.
func (d *Database) Close() error {
	if d.read == d.write {
		return d.write.Close()
	}
	return errors.Join(d.read.Close(), d.write.Close())
}

// Migrate brings the tables up to date, and returns the number of steps, or 0 if they were up to date. It creates a
// missing SQLite file. Several instances may migrate at once.
func (d *Database) Migrate(ctx context.Context) (steps int, err error) {
	steps, err = d.dialect.migrate(ctx, d.write)
	return steps, d.unavailable(err)
}

// unavailable converts an error of the database to one that matches [ErrUnavailable], [ErrNotMigrated] or [ErrFull].
func (d *Database) unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(unavailableError)):
		return fmt.Errorf("%s: %w", d.name, err)
	case d.dialect.unmigrated(err):
		return fmt.Errorf("%s: %w", d.name, ErrNotMigrated)
	case d.dialect.full(err):
		return fmt.Errorf("%s: %w: %w", d.name, ErrFull, err)
	}
	return fmt.Errorf("%s: %w: %w", d.name, ErrUnavailable, err)
}

// commit commits a transaction. Its errors match [ErrFull] or [ErrUnconfirmed].
func (d *Database) commit(tx *sql.Tx) error {
	err := tx.Commit()
	if err != nil && !d.dialect.full(err) {
		err = fmt.Errorf("%w: %w", ErrUnconfirmed, err)
	}
	return d.unavailable(err)
}

// query makes queries in or outside of a transaction.
type query interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// bounded adds a deadline to ctx if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// snapshot returns a snapshot of the database. It reads only the changes since the contents old, which may be nil.
func (d *Database) snapshot(ctx context.Context, old *Contents) (*Contents, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, d.unavailable(err)
	}
	defer func() { _ = tx.Rollback() }()
	c, err := d.contents(ctx, tx, old, "")
	return c, d.unavailable(err)
}
