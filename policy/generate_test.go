package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"time"
)

// periodNames has the limits of random documents. The value is the end of the name that the limit has in a rule with
// several limits.
var periodNames = map[string]string{
	"3/second": "1s", "5/7s": "7s", "9/minute": "1m", "20/hour": "1h", "40/day": "1d", "60/month": "month", "50/month from 30": "month",
	"4/second burst 3": "1s", "6/minute burst 10": "1m", "30/hour burst 4": "1h",
}

var (
	windows = []string{"3/second", "5/7s", "9/minute", "20/hour", "40/day"}
	bursts  = append([]string{"4/second burst 3", "6/minute burst 10", "30/hour burst 4"}, windows...)
	months  = append([]string{"60/month", "50/month from 30"}, windows...)
)

type dice struct{ *rand.Rand }

// one returns true once in n times.
func (r dice) one(n int) bool { return r.IntN(n) == 0 }

func pick[T any](r dice, of ...T) T { return of[r.IntN(len(of))] }

// some returns from least to most of the values, in any order.
func some[T any](r dice, least, most int, of ...T) []T {
	of = slices.Clone(of)
	r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
	return of[:least+r.IntN(most-least+1)]
}

// randomLimits returns limits that a rule with the algorithm can have.
func randomLimits(r dice, algorithm string) []string {
	most := pick(r, 1, 1, 3)
	switch algorithm {
	case "":
		return some(r, 1, most, append(months[:2:2], bursts...)...)
	case "fixed_window":
		return some(r, 1, most, months...)
	case "token_bucket", "gcra":
		return some(r, 1, most, bursts...)
	case "leaky_bucket":
		return some(r, 1, 1, bursts...)
	}
	return some(r, 1, most, windows...)
}

var (
	clients    = []string{"192.0.2.1", "192.0.2.2", "198.51.100.7", "2001:db8::1", "2001:db8::2:0:0:1", "2001:db8:0:1::1"}
	clientSets = []string{"office", "192.0.2.0/24", "198.51.100.7", "2001:db8::/48", "192.0.2.2"}
)

func randomRule(r dice, i int) Rule {
	out := Rule{Name: fmt.Sprint("r", i)}
	if r.one(3) {
		out.Match = some(r, 1, 2, "/a", "POST /a", "/b/{id}", "/{rest...}")
	}
	if r.one(4) {
		out.Clients = some(r, 1, 2, clientSets...)
	}
	if r.one(4) {
		out.NotClients = some(r, 1, 2, clientSets...)
	}
	if r.one(6) {
		out.Headers = map[string]string{"X-User": pick(r, "alice", "*")}
	}
	if r.one(6) {
		out.Attributes = map[string]string{"plan": pick(r, "trial", "*")}
	}
	if r.one(8) {
		out.Exempt, out.Clients = true, some(r, 1, 1, clientSets...)
		return out
	}
	if r.one(8) {
		out.Block, out.Shadow, out.Clients = true, r.one(2), some(r, 1, 1, clientSets...)
		return out
	}
	out.Key = some(r, 0, 2, "header:X-User", "attr:user", "body:name", "const:x", "method", "tls_fingerprint")
	if r.one(2) {
		out.Key = slices.Insert(out.Key, r.IntN(len(out.Key)+1), "client_ip")
	}
	out.Together = some(r, 0, len(out.Key), out.Key...)
	out.Missing = pick(r, "", "share", "skip", "refuse")
	if out.Shadow = r.one(6); !out.Shadow && len(out.Key) > 0 && r.one(3) {
		out.Enforce = pick(r, "10%", "50%", "50.5%", "99.99%", "100%")
	}
	out.Algorithm = pick(r, "", "token_bucket", "gcra", "leaky_bucket", "leaky_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact")
	if out.Limits = randomLimits(r, out.Algorithm); len(out.Limits) == 1 && r.one(2) {
		out.Limit, out.Limits = out.Limits[0], nil
	}
	if r.one(3) {
		out.Tiers = map[string]Limits{"pro": randomLimits(r, out.Algorithm), "free": randomLimits(r, out.Algorithm)}
	}
	if out.Algorithm == "leaky_bucket" {
		return out
	}
	if r.one(2) {
		out.Count = Count{Status: some(r, 0, 2, Status("401"), "4xx", "101", "2xx"), UnlessHeader: pick(r, "", "X-Uncount")}
	}
	switch r.IntN(5) {
	case 0:
		out.Cost = Cost{Default: 1 + r.Int64N(3)}
	case 1:
		out.Cost = Cost{Header: "X-Price", Default: 1 + r.Int64N(2), Max: 6}
	case 2:
		out.Cost = Cost{ResponseHeader: "X-Cost", Estimate: Estimate{Units: r.Int64N(4)}, Max: 7}
	case 3:
		out.Cost = Cost{ResponseBytes: 10, Estimate: Estimate{Units: r.Int64N(4)}}
	}
	return out
}

func randomDocument(r dice) *Document {
	d := &Document{
		TrustedProxies: []string{"10.0.0.1"},
		Lists:          map[string]List{"office": {Networks: some(r, 1, 2, "198.51.100.0/24", "2001:db8::/64", "192.0.2.1")}},
		Tiers:          Tiers{From: "header:X-Plan", Default: pick(r, "", "free")},
	}
	for i := range 1 + r.IntN(5) {
		d.Rules = append(d.Rules, randomRule(r, i))
	}
	seen := make(map[string]bool)
	for range r.IntN(10) {
		rule := &d.Rules[r.IntN(len(d.Rules))]
		o := Override{Rule: rule.Name, Key: make(map[string]string)}
		for _, part := range rule.Key {
			if values := map[string][]string{
				"client_ip":     {"192.0.2.1", "192.0.2.0/24", "192.0.2.0/28", "2001:db8::/48", "2001:db8::"},
				"header:X-User": {"alice", "bob", "*"}, "attr:user": {"7"}, "body:name": {"alice"}, "method": {"GET", "*"},
			}[part]; values != nil && !r.one(4) {
				o.Key[part] = pick(r, values...)
			}
		}
		same := fmt.Sprint(o)
		if len(o.Key) == 0 || seen[same] {
			continue
		}
		seen[same] = true
		if r.one(4) {
			o.Until = time.Now().Add(time.Duration(r.IntN(48)) * time.Hour).Format(time.RFC3339)
		}
		if o.Limits = randomLimits(r, rule.Algorithm); len(o.Limits) == 1 {
			o.Limit, o.Limits = o.Limits[0], nil
		}
		d.Overrides = append(d.Overrides, o)
	}
	return d
}

func randomQuery(r dice) *query {
	q := &query{
		method: pick(r, "GET", "POST"), path: pick(r, "/a", "/b/1", "/c"), client: netip.MustParseAddr(pick(r, clients...)),
		headers: make(map[string]string), attributes: make(map[string]string), at: time.Now(),
	}
	q.headers["X-User"], q.headers["X-Plan"] = pick(r, "", "alice", "alice", "bob"), pick(r, "", "", "pro", "other")
	q.headers["X-Price"] = pick(r, "", "", "2", "5", "9", "0", "x")
	q.attributes["user"], q.attributes["plan"] = pick(r, "", "7", "8"), pick(r, "", "trial", "paid")
	if q.method == "POST" {
		q.name = pick(r, "", "alice", "bob")
	}
	if r.one(10) {
		q.cost = r.Int64N(4)
	}
	if r.one(5) {
		q.mode = pick(r, Peek, GiveBack)
	}
	if r.one(4) {
		q.id = pick(r, "one", "two")
	}
	if r.one(10) {
		q.at = q.at.Add(time.Duration(r.IntN(7200)) * time.Second) // ended blocks may have been deleted
	}
	return q
}

// request returns the request that an integration makes of the query.
func (q *query) request(r dice) *Request {
	out := &Request{Method: q.method, Host: "example.com", Path: q.path, Peer: q.client, Header: http.Header{}, Attributes: q.attributes, Cost: q.cost, Time: q.at, Mode: q.mode, ID: q.id}
	for name, v := range q.headers {
		if v != "" {
			out.Header.Set(name, v)
		}
	}
	if r.one(3) {
		out.Peer = netip.MustParseAddr("10.0.0.1")
		out.Header.Set("X-Forwarded-For", "203.0.113.9, "+q.client.String())
	}
	if q.method == "POST" {
		out.Header.Set("Content-Type", "application/json")
		body := []byte("{}")
		if q.name != "" {
			body = []byte(`{"name": "` + q.name + `"}`)
		}
		out.Body = func(int64) ([]byte, error) { return body, nil }
	}
	return out
}

func randomOutcome(r dice) Outcome {
	o := Outcome{Status: pick(r, 0, 101, 200, 200, 204, 401, 401, 404, 500), Bytes: r.Int64N(120), Header: http.Header{}}
	if r.one(3) {
		o.Bytes = pick(r, int64(-1), 0)
	}
	if r.one(2) {
		o.Header.Set("X-Cost", pick(r, "0", "1", "5", "9", "x", "-1"))
	}
	if r.one(3) {
		o.Header.Set("X-Uncount", pick(r, "0", "1"))
	}
	if r.one(5) {
		o.Verdict = pick(r, Counts, CountsNot)
	}
	if r.one(8) {
		o.Cost = pick(r, int64(-1), 3, 12)
	}
	return o
}
