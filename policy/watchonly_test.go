package policy

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// A policy that says so refuses nothing until the time that it names, and then what is in force by
// then, whatever was swapped meanwhile.
func TestShadowUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		compile := func(shadow string) *Policy {
			p, err := Compile(Document{Shadow: shadow, Rules: []Rule{
				{Name: "closed", Match: []string{"/closed"}, Block: true},
				{Name: "key", Key: []string{"header:X-Key"}, Limit: "1/day"},
			}})
			if err != nil {
				t.Fatal(err)
			}
			return p
		}
		until := time.Now().Add(time.Hour)
		e := NewEngine(memory.New(), compile(until.Format(time.RFC3339)))
		brought := e.Adhoc("throttle", "bob", e.Policy().rules[1].own.limits[0].plan, 0)
		asks := func() (refused int) {
			list := []*Request{
				get("/closed"), get("/", "X-Key: a"), get("/", "X-Key: a"), get("/", "X-Key: bad"),
				{Subject: brought}, {Subject: brought},
			}
			for _, r := range list {
				if !e.Decide(t.Context(), r).Allowed {
					refused++
				}
			}
			ds := make([]Decision, len(list))
			e.DecideEach(t.Context(), list, ds)
			for i := range ds {
				if ds[i].Allowed != e.Policy().WatchOnly() {
					t.Errorf("of a list, %d is allowed: %v", i, ds[i].Allowed)
				}
			}
			return refused
		}
		if n := asks(); n != 0 || !e.Policy().WatchOnly() {
			t.Fatalf("%d are refused", n)
		}
		if at, says := e.Policy().ShadowUntil(); !says || !at.Equal(until.Truncate(time.Second)) {
			t.Errorf("until %v", at)
		}
		if err := e.SwapOverrides([]Override{{Rule: "key", Key: map[string]string{"header:X-Key": "bad"}, Block: true}}); err != nil {
			t.Fatal(err)
		}
		if n := asks(); n != 0 || !e.Policy().WatchOnly() {
			t.Fatalf("after other overrides, %d are refused", n)
		}
		time.Sleep(time.Until(until))
		if n := asks(); n != 6 || e.Policy().WatchOnly() {
			t.Errorf("after its end, %d are refused", n)
		}

		e.Swap(compile(ShadowAlways))
		if n := asks(); n != 0 {
			t.Errorf("always: %d are refused", n)
		}
		time.Sleep(1e6 * time.Second)
		if _, says := e.Policy().ShadowUntil(); !says || !e.Policy().WatchOnly() {
			t.Error("always has ended")
		}
		e.Swap(compile(""))
		if n := asks(); n == 0 || e.Policy().WatchOnly() {
			t.Errorf("what is no shadow: %d are refused", n)
		}
	})
}
