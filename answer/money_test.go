package answer_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// For limits in USD, fields have micro-USD, whatever unit a limit counts in, and sentences have USD.
func TestMoney(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := policy.Compile(policy.Document{
			Prices: policy.Prices{Models: map[string]policy.Price{"*": {Input: "15", Output: "75"}}},
			Rules: []policy.Rule{{
				Name: "team", Limits: []string{"50 USD/day", "30000 USD/12h"}, Algorithm: "sliding_window_log", Cost: policy.Cost{USD: "prices", Estimate: policy.Estimate{Units: 1}},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
		e := policy.NewEngine(memory.New(), p)
		var encoder answer.Encoder
		ask := func(micro int64) (http.Header, string) {
			d := e.Decide(t.Context(), &policy.Request{Path: "/", Cost: micro})
			if unit := d.Results[1].Plan.Limit.Money; unit != 100 {
				t.Errorf("premise: the second limit is counted in units of %d", unit)
			}
			var a answer.Answer
			h := http.Header{}
			encoder.Encode(&a, h, &d, answer.Client{})
			return h, string(a.Body())
		}
		h, _ := ask(1_250_005)
		if got, want := h.Get("Ratelimit-Policy"), `"team-1d";q=50000000;qu="micro-usd";w=86400, "team-12h";q=30000000000;qu="micro-usd";w=43200`; got != want {
			t.Errorf("RateLimit-Policy is %s\nwant %s", got, want)
		}
		if got := h.Get("Ratelimit"); !strings.Contains(got, `"team-1d";r=48749995;`) || !strings.Contains(got, `"team-12h";r=29998749900;`) {
			t.Errorf("RateLimit is %s", got)
		}
		if limit, left := h.Get("X-Ratelimit-Limit"), h.Get("X-Ratelimit-Remaining"); limit != "50000000" || left != "48749995" {
			t.Errorf("%s left of %s", left, limit)
		}
		if _, body := ask(48_749_996); !strings.Contains(body, `"Limit team-1d: 50 USD per 86400s. `) {
			t.Errorf("denied with %s", body)
		}
		if _, body := ask(60_500_000); !strings.Contains(body, "The request asks for 60.50 USD. The limit allows at most 50 USD at once.") {
			t.Errorf("denied forever with %s", body)
		}
		var a answer.Answer
		d := e.Quota(t.Context(), &policy.Request{Path: "/"})
		encoder.Quota(&a, http.Header{}, &d, answer.Client{})
		for _, want := range []string{
			`{"name":"team-1d","quota":50000000,"window":86400,"remaining":48749995,"reset":`, `,"unit":"micro-usd","usd":{"quota":"50","remaining":"48.749995"}}`,
			`{"name":"team-12h","quota":30000000000,"window":43200,"remaining":29998749900,"reset":`, `,"unit":"micro-usd"`,
		} {
			if body := string(a.Body()); !strings.Contains(body, want) {
				t.Errorf("the quota lacks %s: %s", want, body)
			}
		}
	})
}
