package source

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

const (
	connectTimeout = 5 * time.Second
	maxConnections = 8
	idleTime       = 5 * time.Minute
	// leastPause and mostPause bound the pause between attempts to listen.
	leastPause = 100 * time.Millisecond
	mostPause  = 2 * time.Second
	// migrationPatience bounds the wait for a migration by another instance, in seconds.
	migrationPatience = 300
)

// postgres is the dialect of PostgreSQL, version 13 or later.
type postgres struct {
	config *pgx.ConnConfig
	log    *slog.Logger
}

func newPostgres(text string, log *slog.Logger) (dialect, string, error) {
	config, err := pgx.ParseConfig(text)
	if err != nil {
		return nil, "", fmt.Errorf("this is not a PostgreSQL URL%s: write it as in postgres://user@host/name, with %%XX for characters in a password that are not letters or digits", parseReason(err))
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = connectTimeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "sluice"
	}
	host := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	if strings.HasPrefix(config.Host, "/") {
		host = ""
	}
	name := url.URL{Scheme: "postgres", User: url.User(config.User), Host: host, Path: "/" + config.Database}
	return &postgres{config, log}, name.String(), nil
}

// parseReason returns the reason why a URL is invalid, without any part of the URL.
func parseReason(err error) string {
	for _, known := range []string{"invalid port", "invalid connect_timeout", "failed to configure TLS", "failed to read service", "invalid sslcertmode", "unknown target_session_attrs value"} {
		if strings.Contains(err.Error(), ": "+known) {
			return " (" + known + ")"
		}
	}
	return ""
}

func (p *postgres) open() (read, write *sql.DB, err error) {
	db := stdlib.OpenDB(*p.config)
	db.SetMaxOpenConns(maxConnections)
	db.SetConnMaxIdleTime(idleTime)
	return db, db, nil
}

func (p *postgres) migrate(ctx context.Context, write *sql.DB) (int, error) {
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, migrationPatience))
	if err != nil {
		return 0, err
	}
	return migrateAll(ctx, goose.DialectPostgres, write, "postgres", goose.WithSessionLocker(locker))
}

func (p *postgres) text(query string) string { return query }

func (p *postgres) lock() string { return " FOR UPDATE" }

func (p *postgres) unmigrated(err error) bool {
	const undefinedTable = "42P01"
	found, ok := errors.AsType[*pgconn.PgError](err)
	return ok && found.Code == undefinedTable
}

func (p *postgres) full(err error) bool {
	const diskFull = "53100"
	found, ok := errors.AsType[*pgconn.PgError](err)
	return ok && found.Code == diskFull
}

// follow listens for notifications on a separate connection. It reconnects when the connection is lost.
func (p *postgres) follow(ctx context.Context, _ *sql.DB, wake, lost func()) {
	pause := leastPause
	for ctx.Err() == nil {
		begun := time.Now()
		err := p.listen(ctx, wake, lost)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > mostPause {
			pause = leastPause
		}
		p.log.Debug("listening for notifications of the database ended", "error", err, "again_in", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, mostPause)
	}
}

// listen calls the function wake for every notification. It also calls the function at the start, because it may
// have missed earlier notifications.
func (p *postgres) listen(ctx context.Context, wake, lost func()) error {
	conn, err := pgx.ConnectConfig(ctx, p.config.Copy())
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTimeout)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN sluice"); err != nil {
		return err
	}
	lost()
	for wake(); ; wake() {
		if _, err := conn.WaitForNotification(ctx); err != nil {
			return err
		}
	}
}
