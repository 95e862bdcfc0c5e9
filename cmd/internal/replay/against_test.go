package replay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/replay/logtest"
)

// The difference agrees with two separate replays: with their reports and their lists of denied requests.
func TestAgainst(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 41))
		first, other := decode(t, randomPolicy(r)), decode(t, randomPolicy(r))
		other.IPv6Prefix = first.IPv6Prefix
		var lines []logtest.Request
		at := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
		for range 1000 {
			at = at.Add(time.Duration(r.IntN(2)) * time.Second)
			lines = append(lines, logtest.Request{At: at, Client: fmt.Sprintf("192.0.2.%d", r.IntN(20)), Method: "GET", Target: "/a/1?q=x"})
		}
		c := Config{Files: []string{logtest.Write(t, logtest.Combined(lines))}, Document: first, Workers: 2}
		both := c
		both.Against = &other
		report, _ := replayed(t, both)
		before, refusedBefore := replayed(t, c)
		c.Document = other
		after, refusedAfter := replayed(t, c)

		var want Difference
		type pair struct{ before, after int64 }
		clients := map[string]pair{}
		for i := range lines {
			p := clients[lines[i].Client]
			switch b, a := refusedBefore[i], refusedAfter[i]; {
			case b && a:
				want.Both++
				p.before, p.after = p.before+1, p.after+1
			case b:
				want.Only++
				p.before++
			case a:
				want.Newly++
				p.after++
			}
			clients[lines[i].Client] = p
		}
		suffer := 0
		for _, p := range clients {
			if p.before == 0 && p.after > 0 {
				want.ClientsNewly++
			}
			if p.after == 0 && p.before > 0 {
				want.ClientsFreed++
			}
			if p.after > p.before {
				suffer++
			}
		}
		d := report.Against
		if d.Both != want.Both || d.Only != want.Only || d.Newly != want.Newly || d.ClientsNewly != want.ClientsNewly || d.ClientsFreed != want.ClientsFreed || len(d.Suffer) != suffer {
			t.Errorf("seed %d: got %+v, want %+v and %d clients with more denials", seed, d, want, suffer)
		}
		for _, c := range slices.Concat(d.Suffer, d.Relieved) {
			if p := clients[c.Client]; p.before != c.Before || p.after != c.After {
				t.Errorf("seed %d: %+v, want %+v", seed, c, p)
			}
		}
		if a, b := encoded(t, d.Report), encoded(t, after); a != b {
			t.Errorf("seed %d: the other report is\n%s\nand alone\n%s", seed, a, b)
		}
		report.Against = nil
		if a, b := encoded(t, report), encoded(t, before); a != b {
			t.Errorf("seed %d: the report is\n%s\nand alone\n%s", seed, a, b)
		}
	}
}

// Clients are counted up to MaxSubjects, even under a rule with one key for all of them.
func TestManyClientsDenied(t *testing.T) {
	t.Parallel()
	const clients = MaxSubjects/maxParts + 100
	first, other := decode(t, "rules: [{name: all, limit: 1000000/day}]"), decode(t, "rules: [{name: all, limit: 1/day}]")
	var lines []logtest.Request
	for i := range clients {
		lines = append(lines, logtest.Request{At: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), Client: fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), Method: "GET", Target: "/"})
	}
	report, _ := replayed(t, Config{Files: []string{logtest.Write(t, logtest.Combined(lines))}, Document: first, Against: &other, Workers: 1})
	if d := report.Against; d.ClientsNewly != clients-1 || d.Newly != clients-1 {
		t.Errorf("newly denied: %d clients and %d requests, want %d", d.ClientsNewly, d.Newly, clients-1)
	}
}
