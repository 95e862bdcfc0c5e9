package histories

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/checkapi"
	"github.com/sluicehq/sluice/cmd/internal/door/checkgrpc"
)

// checkResult is an element of "results" in an answer of the JSON API.
type checkResult struct {
	Name      string
	Shadow    bool
	Remaining *int64
}

// openCheck asks the JSON API about requests.
func openCheck(p *player) func(*ongoing) {
	return viaCheckAPI(p, func(o *ongoing) map[string]any {
		about := map[string]any{"request": map[string]any{
			"method": o.method, "path": o.path, "client": o.client, "headers": o.fields(),
		}}
		if o.body != "" {
			about["request"].(map[string]any)["body"] = o.body
		}
		if o.mode == "" {
			about["place"] = true
		}
		return about
	})
}

// openCheckRule asks the JSON API about the policy's only rule.
func openCheckRule(p *player) func(*ongoing) {
	return viaCheckAPI(p, func(o *ongoing) map[string]any {
		rule, key := p.onlyRule(o)
		about := map[string]any{"rule": rule, "key": key}
		if o.cost > 0 {
			about["cost"] = o.cost
		}
		if o.holds {
			p.cannot("checks of a rule have no requests in flight")
		}
		return about
	})
}

// onlyRule returns the policy's only rule and a request's key parts.
func (p *player) onlyRule(o *ongoing) (name string, key map[string]string) {
	rules := p.document().Rules
	if len(rules) != 1 || o.path != "/" || rules[0].Exempt {
		p.cannot("it can only ask about one rule")
	}
	key = make(map[string]string)
	for _, part := range rules[0].Key {
		switch kind, name, _ := strings.Cut(part, ":"); kind {
		case "header":
			key[part] = o.header.Get(name)
		case "client_ip":
			key[part] = o.client
		case "api_key":
			key[part] = o.header.Get("X-Api-Key")
		case "const":
		default:
			p.cannot("it cannot send the key part " + kind)
		}
	}
	return rules[0].Name, key
}

func viaCheckAPI(p *player, describe func(*ongoing) map[string]any) func(*ongoing) {
	handler := checkapi.Handler(door.Config{Engine: p.engine, Logger: silent()})
	call := func(path string, in map[string]any, out any) {
		body, err := json.Marshal(in)
		if err != nil {
			p.Fatal(err)
		}
		if err := json.Unmarshal(p.post(handler, path, string(body)), out); err != nil {
			p.Errorf("%s: %v", p.at, err)
		}
	}
	paths := map[string]string{"": "/v1/check", "peek": "/v1/peek", "refund": "/v1/refund"}
	return func(o *ongoing) {
		in := describe(o)
		if o.id != "" {
			in["id"] = o.id
		}
		var a struct {
			Allowed, Exempt, Repeated bool
			Status                    int
			RetryAfter                int64 `json:"retry_after"`
			Delay                     float64
			Blocked, Missing, Place   string
			Results                   []checkResult
		}
		call(paths[o.mode], in, &a)
		o.got = verdict{
			status: a.Status, exempt: a.Exempt, repeated: a.Repeated, blocked: a.Blocked, missing: a.Missing,
			delay: time.Duration(a.Delay * float64(time.Second)), retry: seconds(a.RetryAfter),
		}
		if !a.Allowed && a.RetryAfter == 0 {
			o.got.retry = sluice.Never
		}
		for _, r := range a.Results {
			if r.Remaining != nil {
				o.got.left = append(o.got.left, left{name: r.Name, units: *r.Remaining, shadow: r.Shadow})
			}
		}
		if a.Place != "" && a.Delay == 0 {
			place := map[string]any{"place": a.Place}
			o.hold(func() { call("/v1/hold", place, &struct{}{}) })
			o.finally(func() { call("/v1/release", place, &struct{}{}) })
		}
		if r := o.response; r != nil && a.Allowed {
			delete(in, "place")
			in["outcome"] = map[string]any{"status": r.status, "headers": r.header, "bytes": r.bytes}
			o.finally(func() { call("/v1/settle", in, &struct{}{}) })
		}
	}
}

// post sends JSON to an API, and returns the answer.
func (p *player) post(api http.Handler, path, body string) []byte {
	p.Helper()
	r := httptest.NewRequestWithContext(p.Context(), "POST", path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	if api.ServeHTTP(w, r); w.Code != http.StatusOK {
		p.Fatalf("%s: %s %s: %d %s", p.at, path, body, w.Code, w.Body)
	}
	return w.Body.Bytes()
}

// openCheckGRPC asks the check service about requests.
func openCheckGRPC(p *player) func(*ongoing) {
	conn := p.serveGRPC(func(s *grpc.Server) { checkgrpc.Register(s, door.Config{Engine: p.engine, Logger: silent()}) })
	client := checkgrpc.NewChecksClient(conn)
	modes := map[string]checkgrpc.Mode{
		"": checkgrpc.Mode_MODE_CHARGE, "peek": checkgrpc.Mode_MODE_PEEK, "refund": checkgrpc.Mode_MODE_GIVE_BACK,
	}
	return func(o *ongoing) {
		if o.response != nil {
			p.cannot("it does not learn of responses")
		}
		about := &checkgrpc.HttpRequest{Method: o.method, Path: o.path, Client: o.client, Body: []byte(o.body)}
		for name, values := range o.fields() {
			for _, v := range values {
				about.Headers = append(about.Headers, &checkgrpc.Header{Name: name, Value: v})
			}
		}
		a, err := client.Check(p.Context(), &checkgrpc.CheckRequest{
			About: &checkgrpc.CheckRequest_Request{Request: about}, Mode: modes[o.mode], Id: o.id, Place: o.mode == "",
		})
		if err != nil {
			p.Fatal(fmt.Errorf("%s: %w", p.at, err))
		}
		o.got = verdict{
			status: int(a.Status), exempt: a.Exempt, repeated: a.Known, blocked: a.Blocked, missing: a.Missing,
			delay: a.Delay.AsDuration(), retry: waitOf(a.Allowed, a.RetryAfter),
		}
		for _, r := range a.Results {
			o.got.left = append(o.got.left, left{name: cmp.Or(r.Name, r.Rule), units: r.Remaining, shadow: r.Shadow})
		}
		if a.Place != "" && o.got.delay == 0 {
			place := &checkgrpc.Place{Place: a.Place}
			check := func(_ any, err error) {
				if err != nil {
					p.Errorf("%s: %v", p.at, err)
				}
			}
			o.hold(func() { check(client.Hold(p.Context(), place)) })
			o.finally(func() { check(client.Release(p.Context(), place)) })
		}
	}
}

func waitOf(allowed bool, d *durationpb.Duration) time.Duration {
	if !allowed && d == nil {
		return sluice.Never
	}
	return d.AsDuration()
}
