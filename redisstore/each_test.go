package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
)

var evalCalls = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+)`)

// scripts returns how many scripts a server has run.
func scripts(s *redistest.Server) int {
	n := 0
	if m := evalCalls.FindStringSubmatch(s.Do("INFO", "commandstats")); m != nil {
		n, _ = strconv.Atoi(m[1])
	}
	return n
}

// calls makes n calls, each of a key of its own and of one that all have.
func calls(t testing.TB, n, charges int) []sluice.TakeCall {
	p := plan(t, sluice.TokenBucket, "500/day")
	all := make([]sluice.TakeCall, n)
	for i := range all {
		c := &all[i]
		for j := range charges {
			key := "all"
			if j > 0 {
				key = fmt.Sprint(i, "/", j)
			}
			c.Charges = append(c.Charges, sluice.Charge{Key: key, Plan: p, Cost: 1})
		}
		c.Receipts = make([]sluice.Receipt, charges)
	}
	return all
}

// A thousand Takes are as few calls of the server as their charges fit in, and first come first
// served.
func TestEachInOneCall(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.URL())
	sluice.TakeEach(t.Context(), s, calls(t, 2, 1)) // loads the script
	for charges, want := range map[int]int{1: 1, 2: 2, 3: 3} {
		if err := s.Take(t.Context(), []sluice.Charge{{Key: "all", Plan: plan(t, sluice.TokenBucket, "500/day"), Cost: sluice.All}}, make([]sluice.Receipt, 1)); err != nil {
			t.Fatal(err)
		}
		all := calls(t, 1000, charges)
		before := scripts(server)
		sluice.TakeEach(t.Context(), s, all)
		if n := scripts(server) - before; n != want {
			t.Errorf("1000 Takes of %d charges are %d calls, want %d", charges, n, want)
		}
		for i, c := range all {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
			if fits := c.Receipts[0].Fits; fits != (i < 500) {
				t.Fatalf("with %d charges Take %d fits: %v", charges, i, fits)
			}
		}
	}
}
