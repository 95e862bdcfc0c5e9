package policy

import (
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// dearestEngine returns an engine with a rule for each part of a request that can be expensive to read.
func dearestEngine(t testing.TB) *Engine {
	const rules = `rules:
  - {name: account, match: POST /auth/login, key: ["body:username"], limit: 100000000/second}
  - {name: charged, match: "POST /auth/{rest...}", key: ["body:user_name", "query:q"], limit: 100000000/second, ambiguous: charge}
  - {name: session, key: ["cookie:sid"], limit: 100000000/second}
  - {name: claim, key: ["jwt:sub"], limit: 100000000/second}
  - {name: key, key: [api_key], limit: 100000000/second}
  - {name: below, hosts: ["*.example.com"], key: [host], limit: 100000000/second}`
	return engine(t, rules)
}

// dear has the parts of a request that a client can choose freely.
type dear struct{ path, query, kind, body, cookie, token, host string }

func (d dear) request() *Request {
	data := []byte(d.body)
	return &Request{
		Method: "POST", Host: d.host, Path: d.path, RawQuery: d.query, Peer: netip.AddrFrom4([4]byte{192, 0, 2, 1}),
		Header: http.Header{"Content-Type": {d.kind}, "Cookie": {d.cookie}, "Authorization": {"Bearer " + d.token}},
		Body:   func(int64) ([]byte, error) { return data, nil },
	}
}

func plainLogin() dear {
	return dear{path: "/auth/login", kind: jsonType, body: `{"username":"alice","password":"x"}`, cookie: "sid=abc", token: claims(`{"sub":"alice"}`), host: "example.com"}
}

// repeat returns a text of about size bytes: copies of unit between start and end.
func repeat(start, unit, end string, size int) string {
	return start + strings.Repeat(unit, max(0, size-len(start)-len(end))/len(unit)) + end
}

// dearest returns the most expensive request of each kind, with about size bytes.
func dearest(t testing.TB, size int) map[string]dear {
	all := make(map[string]dear)
	for _, row := range testkit.SectionOf(t, "testdata/dearest.txt", "dearest").Rows(t) {
		d, fill := plainLogin(), testkit.Words(row.Want)
		texts := map[string]*string{
			"path": &d.path, "query": &d.query, "cookie": &d.cookie, "token": &d.token, "claims": &d.token, "host": &d.host,
			"json": &d.body, "form": &d.body, "multipart": &d.body,
		}
		if d.kind = jsonType; fill[0] == "form" {
			d.kind = formType
		} else if fill[0] == "multipart" {
			d.kind = "multipart/form-data; boundary=x"
		}
		text := texts[fill[0]]
		if *text = repeat(fill[1], fill[2], fill[3], size); fill[0] == "claims" {
			*text = claims(repeat(fill[1], fill[2], fill[3], size*3/4))
		}
		all[row.In] = d
	}
	marks := plainLogin()
	marks.body = repeat(`{`, `"`+strings.Repeat(".\u200b", min(size, 960)/4)+`":1,`, `"username":"alice"}`, size)
	all["JSON of marks"] = marks
	return all
}

// BenchmarkDearest decides about the most expensive request of each kind, small and as large as the gateway accepts it.
// "plain" is an ordinary request for comparison.
func BenchmarkDearest(b *testing.B) {
	e := dearestEngine(b)
	run := func(name string, d dear) {
		b.Run(name, func(b *testing.B) {
			r := d.request()
			b.ReportAllocs()
			for b.Loop() {
				e.Decide(b.Context(), r)
			}
		})
	}
	run("plain", plainLogin())
	for _, size := range []int{1 << 10, 64<<10 - 1} {
		for name, d := range dearest(b, size) {
			run(fmt.Sprintf("%dK/%s", (size+1)>>10, name), d)
		}
	}
}
