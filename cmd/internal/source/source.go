// Package source stores policies in a database, SQLite or PostgreSQL, which any number of instances follow.
//
//	db, err := source.Open("sqlite:rules.db", log)
//	_, err = db.Migrate(ctx)
//	contents, err := db.Read(ctx)
//	stack := &source.Stack{Name: db.String(), Swap: engine.Swap}
//	err = stack.Contents(contents)
//	go db.Watch(ctx, func(c *source.Contents) { err := stack.Contents(c); … })
//
// The database has rules, tiers, subjects, overrides, settings (the rest of a document) and the tokens of the admin
// API. [Database.Change] changes them, with an entry in the audit log for each, in one transaction, and rejects an
// invalid policy. Every row has the version of its last change, so that no change overwrites another one unseen:
// see [Match]. Instances also follow changes by SQL, but these leave no entry in the audit log.
//
// A [Stack] puts a database on top of a file.
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
	// callTimeout bounds calls of a database by callers without a deadline, so that a database that hangs counts as
	// unavailable. It is long enough for a queue of a thousand writers.
	callTimeout = 30 * time.Second
	// lookTimeout bounds a check for changes.
	lookTimeout = 2 * time.Second
	// poll is the interval of checks for changes without notifications.
	poll = 500 * time.Millisecond
)

var (
	// ErrAway is matched by errors of a database that does not answer, or answers with an error. If
	// [Database.Change] returns such an error, the change may have been committed nevertheless: read the contents,
	// or repeat the change with a [Match].
	ErrAway = errors.New("the rules database failed")
	// ErrFull is matched by errors of a database with a full disk: nothing was changed. Such errors also match
	// ErrAway.
	ErrFull error = awayError("the disk of the rules database is full")
	// ErrNotMigrated is matched by errors about missing tables.
	ErrNotMigrated = errors.New(`the database has no tables of Sluice: run "sluice migrate"`)
	// ErrNotFound is matched by errors about a missing row.
	ErrNotFound = errors.New("not found")
)

// awayError is an [ErrAway] with another text.
type awayError string

func (e awayError) Error() string      { return string(e) }
func (awayError) Is(target error) bool { return target == ErrAway }

// Database is an open database. It is safe for concurrent use.
type Database struct {
	// Check is called before a change is committed, and its error refuses the change. [Open] sets it to compile the
	// contents alone. If there is also a file, set it to [Stack.Check] before the first change.
	Check func(*Contents) error

	name        string
	dialect     dialect
	read, write *sql.DB
	log         *slog.Logger

	known  atomic.Pointer[Contents] // the latest contents that were read or committed
	handed atomic.Pointer[Contents] // the latest result of Read or Watch
	doubt  atomic.Bool              // known may contain commits that the database has lost
	wakes  chan struct{}            // signals that something may have changed
	poll   time.Duration

	following sync.Mutex // guards status
	status    Status
}

// dialect has the differences between databases.
type dialect interface {
	// open opens the connections for reading and for writing, which may be the same.
	open() (read, write *sql.DB, err error)
	// migrate brings the tables up to date, and returns how many steps that took.
	migrate(ctx context.Context, write *sql.DB) (int, error)
	// text converts a query with the parameters $1, $2, … to the form of the database.
	text(query string) string
	// lock returns a clause for the query that reads the version. It makes transactions with changes run one after
	// the other.
	lock() string
	// follow calls wake when something may have changed, and lost when it may have missed changes, until ctx ends.
	follow(ctx context.Context, read *sql.DB, wake, lost func())
	// unmigrated reports whether an error is about a missing table.
	unmigrated(error) bool
	// full reports whether an error is about a full disk.
	full(error) bool
}

// Open opens a database: "sqlite:FILE", "postgres://user@host/name". It does not connect; [Database.Migrate] and
// [Database.Read] do. A nil log is slog.Default().
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

// Migrate brings the tables up to date and returns how many steps that took: 0 if they were up to date. It creates
// a missing file of SQLite. Several instances may migrate at once.
func (d *Database) Migrate(ctx context.Context) (steps int, err error) {
	steps, err = d.dialect.migrate(ctx, d.write)
	return steps, d.away(err)
}

// away converts errors of the database to an [ErrAway].
func (d *Database) away(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.As(err, new(awayError)):
		return fmt.Errorf("%s: %w", d.name, err)
	case d.dialect.unmigrated(err):
		return fmt.Errorf("%s: %w", d.name, ErrNotMigrated)
	case d.dialect.full(err):
		return fmt.Errorf("%s: %w: %w", d.name, ErrFull, err)
	}
	return fmt.Errorf("%s: %w: %w", d.name, ErrAway, err)
}

// query makes queries, in a transaction or outside.
type query interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// bounded returns ctx with a deadline, if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, callTimeout)
}

// snapshot returns a snapshot of the database, and reads only the changes since old, which may be nil.
func (d *Database) snapshot(ctx context.Context, old *Contents) (*Contents, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	tx, err := d.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return nil, d.away(err)
	}
	defer func() { _ = tx.Rollback() }()
	c, err := d.contents(ctx, tx, old, "")
	return c, d.away(err)
}
