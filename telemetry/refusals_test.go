package telemetry_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/telemetry"
)

const keptPolicy = `
version: 1
rules:
  - {name: address, match: /a/, key: [client_ip], limit: 1/day}
  - {name: secret, match: /s/, key: [api_key], limit: 1/day}
  - {name: hidden, match: /h/, key: [client_ip], limit: 1/day, show_key: hash}
  - {name: watched, match: /w/, key: [client_ip], limit: 1/day, shadow: true}
`

// keeping runs a test with an engine, and keeps the engine's denials. The function ask decides about a request, and
// returns whether it was allowed.
func keeping(t *testing.T, test func(t *testing.T, kept *telemetry.Refusals, ask func(path, address string, fields ...string) bool)) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policyfile.Parse("policy.yaml", []byte(keptPolicy))
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(memory.New(), p)
		kept := telemetry.KeepRefusals(e)
		test(t, kept, func(path, address string, fields ...string) bool {
			r := &policy.Request{Method: "GET", Path: path, Host: "api.example", Peer: netip.MustParseAddr(address), Header: http.Header{}, Door: "gateway"}
			for i := 0; i < len(fields); i += 2 {
				r.Header.Set(fields[i], fields[i+1])
			}
			return e.Decide(t.Context(), r).Allowed
		})
	})
}

// A denial is found by the ID and by the trace of its request, and shows no secret or hidden key.
func TestFindRefusal(t *testing.T) {
	t.Parallel()
	keeping(t, func(t *testing.T, kept *telemetry.Refusals, ask func(string, string, ...string) bool) {
		if n, since := kept.Kept(); n != 0 || !since.IsZero() {
			t.Errorf("before any denial, %d are kept since %v", n, since)
		}
		began := time.Now()
		for range 2 {
			ask("/a/b", "192.0.2.1", "X-Request-Id", "one")
			ask("/s/x", "192.0.2.2", "X-Request-Id", "two", "X-Api-Key", "sk_live_very_secret_42")
			ask("/h/x", "192.0.2.3", "X-Request-Id", "three")
			if !ask("/w/x", "192.0.2.4", "Traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01") {
				t.Error("a shadow denies")
			}
			ask("/a/b", "192.0.2.5") // gets a generated ID
		}
		all := kept.Find("one")
		if len(all) != 1 {
			t.Fatalf("found %+v", all)
		}
		r := all[0]
		if r.Rule != "address" || r.Subject != "192.0.2.1" || r.Address != "192.0.2.1" || r.Path != "/a/b" || r.Method != "GET" || r.Host != "api.example" || r.Door != "gateway" ||
			r.Because != "limit" || !strings.HasPrefix(r.Limit, "1/day") || r.Shadow || r.SubjectID == "" || !r.At.Equal(began) || r.Wait < 86_000 {
			t.Errorf("%+v", r)
		}
		for id, secret := range map[string]string{"two": "very_secret", "three": "192.0.2.3"} {
			all := kept.Find(id)
			if text := fmt.Sprintf("%+v", all); len(all) != 1 || strings.Contains(text, secret) || all[0].SubjectID == "" {
				t.Errorf("%s: %s", id, text)
			}
		}
		if all := kept.Find("4bf92f3577b34da6a3ce929d0e0e4736"); len(all) != 1 || !all[0].Shadow || all[0].Rule != "watched" {
			t.Errorf("by its trace: %+v", all)
		}
		for _, id := range []string{"", "four", "on"} {
			if all := kept.Find(id); all != nil {
				t.Errorf("%q: %+v", id, all)
			}
		}
		if n, since := kept.Kept(); n != 5 || !since.Equal(began) {
			t.Errorf("%d are kept since %v", n, since)
		}
	})
}

// However often one subject is denied, the number of its kept denials is bounded, and they do not displace those of
// others.
func TestRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	keeping(t, func(t *testing.T, kept *telemetry.Refusals, ask func(string, string, ...string) bool) {
		ask("/a/", "192.0.2.1")
		ask("/a/", "192.0.2.1", "X-Request-Id", "before the flood")
		for i := range 20_000 { // by one subject, within a minute
			ask("/a/", "192.0.2.2", "X-Request-Id", fmt.Sprint("flood-", i))
			if i%1000 == 0 {
				time.Sleep(time.Second)
			}
		}
		ask("/a/", "192.0.2.3")
		ask("/a/", "192.0.2.3", "X-Request-Id", "after the flood")
		for _, id := range []string{"before the flood", "after the flood", "flood-1", "flood-32"} {
			if len(kept.Find(id)) != 1 {
				t.Errorf("%s is lost", id)
			}
		}
		if n, _ := kept.Kept(); n > 60 {
			t.Errorf("%d are kept", n)
		}
	})
}

// Neither made-up keys from one address, nor a crowd at one rule, displace the denials of others.
func TestRefusalsOutliveFloods(t *testing.T) {
	t.Parallel()
	keeping(t, func(t *testing.T, kept *telemetry.Refusals, ask func(string, string, ...string) bool) {
		refuse := func(id, path, address, key string) {
			for range 2 {
				ask(path, address, "X-Request-Id", id, "X-Api-Key", key)
			}
		}
		refuse("of a customer", "/s/", "198.51.100.1", "sk_customer")
		for i := range 4_000 {
			refuse("made up", "/s/", "203.0.113.9", fmt.Sprint("made-up-", i))
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		for i := range 4_000 { // the addresses of one network
			refuse("made up, too", "/s/", fmt.Sprintf("2001:db8::%x:%x", i>>16, i&0xffff), fmt.Sprint("made-up-again-", i))
			if i%100 == 0 {
				time.Sleep(time.Second)
			}
		}
		if len(kept.Find("of a customer")) != 1 {
			t.Error("made-up keys have displaced a denial")
		}
		if n, _ := kept.Kept(); n > 600 {
			t.Errorf("%d denials of two attackers are kept", n)
		}
		for i := range 15_000 { // another rule
			refuse("crowd", "/a/", netip.AddrFrom4([4]byte{byte(10 + i%2*90), byte(i >> 16), byte(i >> 8), byte(i)}).String(), "")
			if i%250 == 0 {
				time.Sleep(time.Second)
			}
		}
		refuse("now", "/w/", "198.51.100.2", "")
		n, since := kept.Kept()
		if n != 4096 {
			t.Errorf("%d denials are kept, want 4096", n)
		}
		// 100 a second are kept, so 4,096 denials are those of 41 s.
		if age := time.Since(since); age < 30*time.Second {
			t.Errorf("the oldest is %v old", age)
		}
		for _, id := range []string{"of a customer", "now"} {
			if len(kept.Find(id)) != 1 {
				t.Errorf("%q was displaced by the denials of another rule", id)
			}
		}
	})
}

// Every denial has an ID, by which each instance finds it, whichever instance denied the request. The posts for this
// stay small, and an unreadable post does not hide others.
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
			t.Fatalf("denied with the IDs %q and %q", own.RequestID(), second.RequestID())
		}
		brought := refuse(b, netip.MustParseAddr("192.0.2.2"), "brought")
		if brought.RequestID() != "brought" {
			t.Errorf("the ID of the client became %q", brought.RequestID())
		}
		time.Sleep(10 * time.Second) // virtual time, in which both instances post
		for id, instance := range map[string]string{own.RequestID(): "a", "brought": "b"} {
			for _, m := range []*member{a, b} {
				found := m.fleet.FindRefusals(t.Context(), id)
				if len(found.Refusals) != 1 || found.Refusals[0].Instance != instance || found.Refusals[0].Rule != "address" || found.Kept != 4 || found.Err != nil {
					t.Errorf("%s: %+v", id, found)
				}
			}
		}

		// In a flood, the latest denials of another instance are found, and the posts stay bounded.
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
		for instance, message := range posted {
			if len(message) > 192<<10 {
				t.Errorf("%s posted %d bytes", instance, len(message))
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
