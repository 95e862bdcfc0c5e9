//go:build long

package source_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// A server that comes back without its last changes, as a replica may that was promoted, is
// followed, also where versions are those of other changes by then.
func TestLongPostgresLostCommits(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t)
	address := server.Addr
	url := server.Database()
	writer := migrated(t, url)
	putRule(t, writer, "a", "1/minute")
	f := follow(t, url)
	v := putRule(t, writer, "a", "2/minute")
	f.saw(t, "a 2/minute")
	// It is as if the last change had never been made, and another one in its place.
	server.Move()
	by := direct(t, strings.Replace(url, address, server.Addr, 1))
	execute(t, by, "ALTER TABLE sluice_rules DISABLE TRIGGER ALL")
	execute(t, by, fmt.Sprintf(`UPDATE sluice_rules SET document = '{"limit": "3/minute"}', version = %d`, v))
	execute(t, by, "ALTER TABLE sluice_rules ENABLE TRIGGER ALL")
	testkit.Await(t, "the loss is noticed", func() bool { return f.db.Status().Unavailable })
	old := f.latest.Load()
	server.MoveTo(address)
	f.saw(t, "a 3/minute")
	if f.latest.Load().SamePolicy(old) {
		t.Error("it is said to be the same policy")
	}
}
