//go:build long

package source_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// The follower sees the right contents if the server returns without its last commits, as a promoted replica may, even
// if the lost versions now belong to other changes.
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
	// Simulate that the last change was lost, and that another change has its version.
	server.Move()
	by := direct(t, strings.Replace(url, address, server.Addr, 1))
	execute(t, by, "ALTER TABLE sluice_rules DISABLE TRIGGER ALL")
	execute(t, by, fmt.Sprintf(`UPDATE sluice_rules SET document = '{"limit": "3/minute"}', version = %d`, v))
	execute(t, by, "ALTER TABLE sluice_rules ENABLE TRIGGER ALL")
	testkit.Await(t, "the follower reports the database as unavailable", func() bool { return f.db.Status().Unavailable })
	old := f.latest.Load()
	server.MoveTo(address)
	f.saw(t, "a 3/minute")
	if f.latest.Load().SamePolicy(old) {
		t.Error("SamePolicy reports no difference")
	}
}
