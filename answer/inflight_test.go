package answer

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// What a client is told of requests in flight: no window, and no time at which more may pass.
func TestInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ask := func(e *policy.Engine, path string, encoder *Encoder, h http.Header) (a Answer) {
			d := e.Decide(t.Context(), &policy.Request{Path: path, Peer: netip.MustParseAddr("192.0.2.1"), Ends: true})
			encoder.Encode(&a, h, &d, Client{})
			return a
		}
		document := policy.Document{Rules: []policy.Rule{
			{Name: "day", Match: []string{"/both"}, Limit: "1000/day"},
			{Name: "search", InFlight: 4},
		}}
		now := time.Now().Unix()
		for _, c := range []struct {
			name string
			*Encoder
			alone, both string
		}{
			{"draft 11", &Encoder{},
				`Ratelimit-Policy: "search";q=4;qu="concurrent-requests" | Ratelimit: "search";r=3 | X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 3`,
				`Ratelimit-Policy: "day";q=1000;w=86400, "search";q=4;qu="concurrent-requests" | Ratelimit: "day";r=999;t=86314, "search";r=2 | X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 2`},
			{"draft 7", &Encoder{Dialect: Draft7, XFields: NoXFields},
				`Ratelimit: limit=4, remaining=3, reset=1`,
				`Ratelimit-Policy: 1000;w=86400 | Ratelimit: limit=4, remaining=2, reset=1`},
			{"draft 3", &Encoder{Dialect: Draft3, XFields: XDelta},
				`Ratelimit-Limit: 4 | Ratelimit-Remaining: 3 | Ratelimit-Reset: 1 | X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 3`,
				`Ratelimit-Limit: 4 | Ratelimit-Remaining: 2 | Ratelimit-Reset: 1 | X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 2`},
			{"X alone", &Encoder{Dialect: NoRateLimit},
				`X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 3`, `X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 2`},
		} {
			for path, want := range map[string]string{"/alone": c.alone, "/both": c.both} {
				e := engine(t, document)
				if path == "/both" {
					ask(e, "/alone", c.Encoder, http.Header{})
				}
				h := http.Header{"X-Ratelimit-Reset": {"7"}} // of another door
				if c.XFields == NoXFields {
					h = http.Header{}
				}
				ask(e, path, c.Encoder, h)
				if got := listed(h); got != want {
					t.Errorf("%s, %s:\n got %s\nwant %s", c.name, path, got, want)
				}
			}
		}

		var encoder Encoder
		e := engine(t, document)
		for range 4 {
			ask(e, "/both", &encoder, http.Header{})
		}
		h := http.Header{}
		a := ask(e, "/both", &encoder, h)
		want := `Cache-Control: no-store | Content-Type: application/problem+json | Ratelimit-Policy: "day";q=1000;w=86400, "search";q=4;qu="concurrent-requests" | ` +
			`Ratelimit: "day";r=996;t=86055, "search";r=0 | Retry-After: 1 | X-Ratelimit-Limit: 4 | X-Ratelimit-Remaining: 0`
		if got := listed(h); a.Status != 429 || got != want {
			t.Errorf("%d\n got %s\nwant %s", a.Status, got, want)
		}
		if body, want := string(a.Body()), `"detail":"Too many requests at once: limit search is 4. Retry in 1 s.","violated-policies":["search"],"error":"rate_limit_exceeded","retry_after":1}`; !strings.Contains(body, want) {
			t.Errorf("%s, want %s", body, want)
		}

		d := e.Quota(t.Context(), &policy.Request{Path: "/both", Peer: netip.MustParseAddr("192.0.2.1")})
		encoder.Quota(&a, http.Header{}, &d, Client{})
		want = fmt.Sprintf(`{"limits":[{"name":"day","quota":1000,"window":86400,"remaining":996,"reset":%d},{"name":"search","quota":4,"remaining":0,"unit":"concurrent-requests","retry_after":1}]}`+"\n", now+346)
		if body := string(a.Body()); body != want {
			t.Errorf("quota\n got %swant %s", body, want)
		}
	})
}

// Of a limit that is nearly used up and places that are nearly taken, clients are told of the smaller
// share.
func TestInFlightMostRestrictive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := engine(t, policy.Document{Rules: []policy.Rule{{Name: "day", Limit: "4/day"}, {Name: "search", InFlight: 10}}})
		for i, want := range []int{0, 0} {
			d := e.Decide(t.Context(), &policy.Request{Ends: true})
			if got := MostRestrictive(d.Results, d.Now); got != want {
				t.Errorf("request %d: %d, want %d", i, got, want)
			}
		}
		other := engine(t, policy.Document{Rules: []policy.Rule{{Name: "day", Limit: "1000/day"}, {Name: "search", InFlight: 10}}})
		d := other.Decide(t.Context(), &policy.Request{Ends: true})
		if got := MostRestrictive(d.Results, d.Now); got != 1 {
			t.Errorf("%d, want that of requests in flight", got)
		}
	})
}

// listed returns fields in the order of their names.
func listed(h http.Header) string {
	var all []string
	for _, name := range []string{"Cache-Control", "Content-Type", "Ratelimit-Policy", "Ratelimit", "Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset", "Retry-After", "X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"} {
		for _, v := range h[name] {
			all = append(all, name+": "+v)
		}
	}
	return strings.Join(all, " | ")
}

// degraded is a store of which it is said that a stand-in has decided.
type degraded struct{ *memory.Store }

func (s degraded) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	err := s.Store.Take(ctx, charges, receipts)
	for i := range receipts {
		receipts[i].Origin = sluice.ByLocalShare
	}
	return err
}

// A client that has left while a stand-in decided is refused, and keeps no place.
func TestInFlightLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "all", InFlight: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(degraded{memory.New()}, p)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		d := e.Decide(ctx, &policy.Request{Ends: true})
		if !d.Held() {
			t.Fatalf("%+v", d)
		}
		held := d
		Settle(ctx, &d, nil, func(ctx context.Context) { e.Refund(ctx, held) })
		if d.Allowed || d.Held() {
			t.Errorf("%+v", d)
		}
		time.Sleep(sluice.PlaceLasts / 2)
		if d := e.Decide(t.Context(), &policy.Request{}); !d.Allowed {
			t.Error("its place is taken")
		}
	})
}
