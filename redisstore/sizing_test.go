package redisstore_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// usedMemory is what the server has in use.
const usedMemory = `return tonumber(string.match(redis.call('INFO', 'memory'), 'used_memory:(%d+)'))`

// What a key takes of the server's memory is what docs/redis.md says, give or take a quarter: the
// versions of servers differ. All of the limit is used up under each key.
func TestSizing(t *testing.T) {
	const keys = 16000 // the server's table doubles at 16,384
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| `(\\S+)` \\| ([0-9,]+) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) < len(sluice.Algorithms()) {
		t.Fatalf("docs/redis.md has %d rows", len(rows))
	}
	for _, row := range rows {
		said, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		var calls []sluice.TakeCall
		for i := range keys {
			for _, c := range charges(t, row[1], row[2], i) {
				calls = append(calls, sluice.TakeCall{Charges: []sluice.Charge{c}, Receipts: make([]sluice.Receipt, 1)})
			}
		}
		measured := math.NaN()
		redistest.Eventually(t, "no window has ended meanwhile", func() bool {
			server := redistest.Start(t)
			used := func() int64 { return number(t, server, "EVAL", usedMemory, "0") }
			before := used()
			store := open(t, server.URL())
			store.TakeEach(t.Context(), calls)
			store.Close()
			redistest.Eventually(t, "only the test is connected", func() bool { return server.Info("connected_clients") == "1" })
			measured = float64(used()-before) / keys
			for _, c := range calls {
				if c.Err != nil || !c.Receipts[0].Fits {
					t.Fatalf("%s %s: %v, %+v", row[1], row[2], c.Err, c.Receipts)
				}
			}
			return number(t, server, "DBSIZE") == keys
		})
		t.Logf("%s %s: %.0f bytes a key", row[1], row[2], measured)
		if math.Abs(measured-said) > said/4 {
			t.Errorf("%s %s: %.0f bytes a key, and docs/redis.md says %.0f", row[1], row[2], measured, said)
		}
	}
}

// charges use up a limit under a key like that of an IPv4 address.
func charges(t *testing.T, algorithm, limit string, i int) (all []sluice.Charge) {
	t.Helper()
	key := fmt.Sprintf("per-address/203.%d.%d.%d", 100+i>>14, 100+i>>7&0x7f, 100+i&0x7f)
	if algorithm == "in_flight" {
		n, err := strconv.Atoi(limit)
		if err != nil {
			t.Fatal(err)
		}
		for number := range n {
			all = append(all, aPlace(t, key, int64(n), uint64(number)+1, 1))
		}
		return all
	}
	for _, a := range sluice.Algorithms() {
		if a.String() == algorithm {
			p := plan(t, a, limit)
			return []sluice.Charge{{Key: key, Plan: p, Cost: p.Capacity}}
		}
	}
	t.Fatalf("there is no algorithm %q", algorithm)
	return nil
}

// The page tells an operator to allow what the error for a user without rights does.
func TestRightsOnPage(t *testing.T) {
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	server := redistest.Start(t)
	server.Do("ACL", "SETUSER", "app", "on", ">pw", "-@all")
	_, err = redisstore.Open(t.Context(), strings.Replace(server.URL(), "://", "://app:pw@", 1))
	if err == nil {
		t.Fatal("a user without rights opens a store")
	}
	rights := regexp.MustCompile(`ACL SETUSER NAME (.*?) \(`).FindStringSubmatch(err.Error())
	if rights == nil || !strings.Contains(string(page), "on >PASSWORD "+rights[1]+"\n") {
		t.Errorf("docs/redis.md does not have %q (%v)", rights, err)
	}
}

// A server takes the settings of the page, and is not dangerous for limits with them.
func TestSettingsOnPage(t *testing.T) {
	page, err := os.ReadFile("../docs/redis.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)## Settings\n\n```\n(.*?)```").FindStringSubmatch(string(page))
	if block == nil {
		t.Fatal("docs/redis.md has no settings")
	}
	var settings []string
	for line := range strings.Lines(block[1]) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		settings = append(settings, "--"+name, value)
	}
	found, err := open(t, redistest.Start(t, settings...).URL()).Dangers(t.Context())
	if err != nil || len(found) > 0 {
		t.Errorf("%q (%v)", found, err)
	}
}
