package answer

import (
	"encoding/json"
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

// What a client is told when it asks what is left.
func TestQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(12 * time.Hour) // it is noon of 2000-01-01
		e := engine(t, policy.Document{
			CORS: policy.CORS{Origins: []string{"https://a.example"}},
			Rules: []policy.Rule{
				{Name: "office", Clients: []string{"192.0.2.9"}, Exempt: true},
				{Name: "abusers", Clients: []string{"192.0.2.8"}, Block: true},
				{Name: "a", Key: []string{"client_ip"}, Limits: []string{"3/250ms burst 2", "10/minute"}},
				{Name: "month", Key: []string{"client_ip"}, Limit: "1000/month"},
				{Name: "watched", Limit: "1/day", Shadow: true},
			},
		})
		ask := func(client string) (Answer, http.Header, string) {
			var a Answer
			var encoder Encoder
			h := http.Header{}
			d := e.Quota(t.Context(), &policy.Request{Peer: netip.MustParseAddr(client)})
			encoder.Quota(&a, h, &d, Client{Header: http.Header{"Origin": {"https://a.example"}}, CORS: e.Policy().CORS()})
			return a, h, string(a.Body())
		}
		for range 2 {
			e.Decide(t.Context(), &policy.Request{Peer: netip.MustParseAddr("192.0.2.1")})
		}
		now := time.Now().Unix()
		month := time.Date(2000, 2, 1, 0, 0, 0, 0, time.UTC).Unix()
		want := fmt.Sprintf(`{"limits":[{"name":"a-250ms","quota":12,"window":1,"remaining":0,"reset":%d,"retry_after":1},`+
			`{"name":"a-1m","quota":10,"window":60,"remaining":8,"reset":%d},{"name":"month","quota":1000,"window":2678400,"remaining":998,"reset":%d}]}`+"\n", now+1, now+12, month)
		a, h, body := ask("192.0.2.1")
		if a.Status != 200 || body != want || !json.Valid([]byte(body)) || h.Get("Content-Type") != "application/json" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%d, %v\n got %swant %s", a.Status, h, body, want)
		}
		if fields := h.Get("Ratelimit"); !strings.Contains(fields, `"a-1m";r=8;`) || h.Get("Retry-After") != "" || h.Get("Access-Control-Allow-Origin") != "https://a.example" {
			t.Errorf("fields: %v", h)
		}
		if a, h, body := ask("192.0.2.9"); a.Status != 200 || body != "{\"limits\":[]}\n" || h.Get("Access-Control-Allow-Origin") == "" {
			t.Errorf("exempt: %d, %v, %s", a.Status, h, body)
		}
		if a, h, body := ask("192.0.2.8"); a.Status != 403 || h.Get("Ratelimit") != "" || !strings.Contains(body, `"error":"blocked"`) {
			t.Errorf("blocked: %d, %v, %s", a.Status, h, body)
		}
	})
}

// All limits are told, though the fields have room for some, and nothing where nothing is known.
func TestQuotaOfMany(t *testing.T) {
	var doc policy.Document
	for i := range 2 * maxVisible {
		doc.Rules = append(doc.Rules, policy.Rule{Name: fmt.Sprint("r", i), Limit: "1/day"})
	}
	e := engine(t, doc)
	var a Answer
	var encoder Encoder
	d := e.Quota(t.Context(), &policy.Request{})
	encoder.Quota(&a, http.Header{}, &d, Client{})
	var told struct{ Limits []struct{ Name string } }
	if err := json.Unmarshal(a.Body(), &told); err != nil || len(told.Limits) != 2*maxVisible {
		t.Errorf("%d limits, %v", len(told.Limits), err)
	}
	for _, d := range []policy.Decision{
		{Allowed: true, Degraded: true, Err: http.ErrServerClosed, Results: []policy.Result{{Rule: "a", Decision: sluice.Decision{Allowed: true, Origin: sluice.ByOnError}}}},
		{Unavailable: true, Degraded: true, RetryAfter: time.Second, Results: []policy.Result{{Rule: "a", Decision: sluice.Decision{Origin: sluice.ByOnError}}}},
	} {
		d.Results[0].Plan = e.Quota(t.Context(), &policy.Request{}).Results[0].Plan
		h := http.Header{}
		encoder.Quota(&a, h, &d, Client{})
		if a.Status != 503 || h.Get("Retry-After") != "1" || !strings.Contains(string(a.Body()), "temporary_reduced_capacity") {
			t.Errorf("without the store: %d, %v, %s", a.Status, h, a.Body())
		}
	}
}

func engine(t *testing.T, doc policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}
