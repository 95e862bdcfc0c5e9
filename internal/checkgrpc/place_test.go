package checkgrpc

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
	"github.com/sluicehq/sluice/stores"
)

const flightRules = `
version: 1
tiers: {from: "attr:plan"}
rules:
  - {name: all, in_flight: 4}
  - {name: user, key: ["attr:user"], missing: skip, in_flight: 1, tiers: {pro: 2}}
`

// Whoever asks for a place has one until it says that the request has ended, by a call or in a batch, at
// whatever instance, and whoever does not only looks.
func TestPlaces(t *testing.T) {
	redis := redistest.Start(t)
	p, err := policyfile.Parse("test.yaml", []byte(flightRules))
	if err != nil {
		t.Fatal(err)
	}
	var both [2]ChecksClient
	for i := range both {
		store, err := stores.Open(t.Context(), redis.URL(), stores.Config{Required: true, Deadline: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		both[i] = serve(t, Config{Engine: policy.NewEngine(sluice.Store(store), p)})
	}
	here, there := both[0], both[1]
	user := func(plan string, place bool) *CheckRequest {
		c := about("GET", "/")
		c.GetRequest().Attributes = map[string]string{"user": "alice", "plan": plan}
		c.Place = place
		return c
	}
	ask := func(client ChecksClient, c *CheckRequest) *CheckResponse {
		t.Helper()
		out, err := client.Check(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	left := func(a *CheckResponse, rule string) int64 {
		for _, r := range a.Results {
			if r.Rule == rule {
				return r.Remaining
			}
		}
		return -1
	}
	release := func(client ChecksClient, place string) {
		t.Helper()
		if _, err := client.Release(t.Context(), &Place{Place: place}); err != nil {
			t.Fatal(err)
		}
	}
	first := ask(here, user("pro", true))
	stream := open(t, there)
	if err := stream.Send(&CheckBatch{Checks: []*CheckRequest{user("pro", true), user("pro", true), user("pro", false)}}); err != nil {
		t.Fatal(err)
	}
	batch, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	second, third, look := batch.Answers[0], batch.Answers[1], batch.Answers[2]
	if !first.Allowed || !second.Allowed || first.Place == "" || second.Place == "" || first.Place == second.Place {
		t.Fatalf("%v\n%v", first, second)
	}
	if third.Allowed || third.Place != "" || third.Status != 429 || third.RetryAfter.AsDuration() != time.Second || left(third, "all") != 2 {
		t.Errorf("a third: %v", third)
	}
	if look.Allowed || look.Place != "" {
		t.Errorf("a look: %v", look)
	}
	if a := ask(here, &CheckRequest{About: &CheckRequest_Subject{Subject: &Subject{Rule: "all"}}}); !a.Allowed || a.Place != "" || left(a, "all") != 2 {
		t.Errorf("a look at another rule: %v", a)
	}
	if out, err := here.Hold(t.Context(), &Place{Place: second.Place}); err != nil || !out.Held {
		t.Errorf("the second is held: %v, %v", out, err)
	}
	for range 2 {
		release(there, first.Place)
	}
	if a := ask(here, user("", false)); a.Allowed || left(a, "all") != 3 {
		t.Errorf("of one place, one is taken: %v", a)
	}
	// A place that was free meanwhile is taken again, if there is room by the number of its tier.
	if out, err := here.Hold(t.Context(), &Place{Place: first.Place}); err != nil || !out.Held {
		t.Errorf("the first is held again: %v, %v", out, err)
	}
	release(here, first.Place)
	release(here, second.Place)
	if a := ask(here, user("", false)); !a.Allowed || left(a, "all") != 4 || left(a, "user") != 1 {
		t.Errorf("when both have ended: %v", a)
	}
	for _, wrong := range []string{"", "x", first.Place[:len(first.Place)-4], first.Place + first.Place} {
		_, err1 := here.Hold(t.Context(), &Place{Place: wrong})
		_, err2 := here.Release(t.Context(), &Place{Place: wrong})
		if status.Code(err1) != codes.InvalidArgument || status.Code(err2) != codes.InvalidArgument {
			t.Errorf("%q: %v, %v", wrong, err1, err2)
		}
	}
	for _, mode := range []Mode{Mode_MODE_PEEK, Mode_MODE_GIVE_BACK} {
		c := user("", true)
		c.Mode = mode
		if _, err := here.Check(t.Context(), c); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v with a place: %v", mode, err)
		}
	}
	redis.Kill()
	if _, err := here.Hold(t.Context(), &Place{Place: second.Place}); status.Code(err) != codes.Unavailable {
		t.Errorf("without the store: %v", err)
	}
}
