package source

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrateAll applies the migrations in a folder that have not been applied yet, and returns their number.
// Migrations only go forward.
func migrateAll(ctx context.Context, dialect goose.Dialect, db *sql.DB, folder string, options ...goose.ProviderOption) (int, error) {
	files, err := fs.Sub(migrations, "migrations/"+folder)
	if err != nil {
		return 0, err
	}
	options = append(options, goose.WithTableName("sluice_migrations"), goose.WithDisableGlobalRegistry(true))
	steps := 0
	for {
		provider, err := goose.NewProvider(dialect, db, files, options...)
		if err != nil {
			return steps, err
		}
		before, _ := provider.GetDBVersion(ctx)
		done, err := provider.Up(ctx)
		if failed := new(goose.PartialError); errors.As(err, &failed) {
			steps += len(failed.Applied)
		}
		steps += len(done)
		if err == nil {
			return steps, nil
		}
		// Without a lock, another instance may have migrated first. Then the error does not matter.
		if after, look := provider.GetDBVersion(ctx); look != nil || after <= before {
			return steps, fmt.Errorf("migration: %w", err)
		}
	}
}
