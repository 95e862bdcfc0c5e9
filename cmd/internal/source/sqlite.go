package source

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

const (
	readers = 4
	// filePoll is the interval at which the version in a file is read. A read takes about 50 µs.
	filePoll = 100 * time.Millisecond
	// busyTimeout bounds the wait for other users of the file.
	busyTimeout = 20 * time.Second
)

// sqlite is the dialect of SQLite. The file must be on a local disk, because SQLite's locks do not work over a
// network.
type sqlite struct{ path string }

func newSQLite(rest string) (dialect, string, error) {
	path := strings.TrimPrefix(rest, "//")
	if path == "" || strings.ContainsAny(path, "?\x00") {
		return nil, "", errors.New("name the file, as in sqlite:rules.db")
	}
	if strings.Contains(path, ":memory:") {
		return nil, "", errors.New("a database in memory ends with the process: name a file, as in sqlite:rules.db")
	}
	absolute, err := filepath.Abs(path)
	return &sqlite{absolute}, "sqlite:" + path, err
}

// dsn returns the settings of a connection. With these, a commit is on the disk when it is acknowledged
// (synchronous), writers wait for each other, and a missing file is not created.
func (s *sqlite) dsn(more url.Values) string {
	more.Set("mode", "rw")
	more["_pragma"] = append([]string{fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds())}, append(more["_pragma"], "synchronous(FULL)")...)
	return (&url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(s.path), RawQuery: more.Encode()}).String()
}

func (s *sqlite) open() (read, write *sql.DB, err error) {
	read, err = sql.Open("sqlite", s.dsn(url.Values{"_pragma": {"query_only(1)"}}))
	if err != nil {
		return nil, nil, err
	}
	write, err = sql.Open("sqlite", s.dsn(url.Values{"_txlock": {"immediate"}}))
	if err != nil {
		return nil, nil, err
	}
	read.SetMaxOpenConns(readers)
	write.SetMaxOpenConns(1) // writers wait for this connection, in order, rather than for the file
	return read, write, nil
}

// migrate brings the tables up to date. It creates a missing file, which is readable only by its owner, because it
// contains hashes of tokens.
func (s *sqlite) migrate(ctx context.Context, write *sql.DB) (int, error) {
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return 0, unavailableError(fmt.Sprintf("the directory %s does not exist: create it, or use another one", filepath.Dir(s.path)))
	}
	if err != nil {
		return 0, err
	}
	f.Close()
	ctx, cancel := context.WithTimeout(ctx, busyTimeout)
	defer cancel()
	for steps := 0; ; {
		n, err := s.migrateOnce(ctx, write)
		steps += n
		if !isBusy(err) || ctx.Err() != nil {
			return steps, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// migrateOnce fails if another process migrates the same file, because SQLite does not wait for a change of the
// journal mode.
func (s *sqlite) migrateOnce(ctx context.Context, write *sql.DB) (int, error) {
	if _, err := write.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
		return 0, err
	}
	return migrateAll(ctx, goose.DialectSQLite3, write, "sqlite")
}

func isBusy(err error) bool {
	failed, ok := errors.AsType[*driver.Error](err)
	return ok && failed.Code()&0xff == codes.SQLITE_BUSY
}

func (s *sqlite) text(query string) string { return strings.ReplaceAll(query, "$", "?") }

// lock returns "", because a transaction locks the whole file.
func (s *sqlite) lock() string { return "" }

func (s *sqlite) unmigrated(err error) bool {
	_, missing := os.Stat(s.path)
	return strings.Contains(err.Error(), "no such table: sluice_") || errors.Is(missing, os.ErrNotExist)
}

func (s *sqlite) full(err error) bool {
	found, ok := errors.AsType[*driver.Error](err)
	return ok && found.Code()&0xff == codes.SQLITE_FULL
}

// follow never calls wake, because the file is polled.
func (s *sqlite) follow(ctx context.Context, _ *sql.DB, _, _ func()) { <-ctx.Done() }
