package telemetry_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Every refusal has an ID, by which each instance finds it, whichever has refused it. What is posted for that
// stays small, and a post that cannot be read hides no other.
func TestRefusalsOfAllInstances(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		board := new(wall)
		rules := []policy.Rule{{Name: "address", Key: []string{"client_ip"}, Limit: "1/day"}}
		start := func(name string) *member {
			e := policy.NewEngine(memory.New(), compile(t, rules...))
			return joinBy(t, board, e, telemetry.Config{Instance: name}, telemetry.KeepRefusals(e))
		}
		a, b := start("a"), start("b")
		refuse := func(m *member, address netip.Addr, id string) policy.Decision {
			r := &policy.Request{Method: "GET", Path: "/", Peer: address, Header: http.Header{}}
			if id != "" {
				r.Header.Set("X-Request-Id", id)
			}
			m.engine.Decide(t.Context(), r)
			return m.engine.Decide(t.Context(), r)
		}
		own, second := refuse(a, netip.MustParseAddr("192.0.2.1"), ""), refuse(a, netip.MustParseAddr("192.0.2.1"), "")
		if own.Allowed || len(own.RequestID()) != 16 || own.RequestID() == second.RequestID() {
			t.Fatalf("refused as %q and %q", own.RequestID(), second.RequestID())
		}
		brought := refuse(b, netip.MustParseAddr("192.0.2.2"), "brought")
		if brought.RequestID() != "brought" {
			t.Errorf("the ID that was brought is %q", brought.RequestID())
		}
		time.Sleep(10 * time.Second) // of virtual time, in which both post
		for id, instance := range map[string]string{own.RequestID(): "a", "brought": "b"} {
			for _, m := range []*member{a, b} {
				found := m.fleet.FindRefusals(t.Context(), id)
				if len(found.Refusals) != 1 || found.Refusals[0].Instance != instance || found.Refusals[0].Rule != "address" || found.Kept != 4 || found.Err != nil {
					t.Errorf("%s: %+v", id, found)
				}
			}
		}

		// A flood: the latest of another instance are found, within a bound.
		for i := range 2000 {
			refuse(a, netip.AddrFrom4([4]byte{100, 64, byte(i >> 8), byte(i)}), fmt.Sprintf("flood-%d-%x", i, i*i))
			if i%50 == 0 {
				time.Sleep(time.Second)
			}
		}
		_ = board.Post(t.Context(), "refusals", "bad", []byte("\xff not a post"), time.Hour)
		time.Sleep(20 * time.Second)
		if found := b.fleet.FindRefusals(t.Context(), "flood-1999-"+fmt.Sprintf("%x", 1999*1999)); len(found.Refusals) != 1 {
			t.Errorf("the last of a flood: %+v", found)
		}
		posted, err := board.Posted(t.Context(), "refusals")
		if err != nil || len(posted) != 3 {
			t.Fatalf("%d posts, %v", len(posted), err)
		}
		for instance, said := range posted {
			if len(said) > 192<<10 {
				t.Errorf("%s posts %d bytes", instance, len(said))
			}
		}
		board.set(true)
		if found := b.fleet.FindRefusals(t.Context(), "brought"); len(found.Refusals) != 1 || found.Err == nil {
			t.Errorf("without the board: %+v", found)
		}
		a.stop()
		b.stop()
	})
}
