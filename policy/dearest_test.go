package policy

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/memory"
)

// dearestEngine has a rule for each thing that a request can be dear by.
func dearestEngine(t testing.TB) *Engine {
	const rules = `version: 1
rules:
  - {name: account, match: POST /auth/login, key: ["body:username"], limit: 100000000/second}
  - {name: charged, match: "POST /auth/{rest...}", key: ["body:user_name", "query:q"], limit: 100000000/second, ambiguous: charge}
  - {name: session, key: ["cookie:sid"], limit: 100000000/second}
  - {name: claim, key: ["jwt:sub"], limit: 100000000/second}
  - {name: key, key: [api_key], limit: 100000000/second}
  - {name: below, hosts: ["*.example.com"], key: [host], limit: 100000000/second}`
	p, err := Parse("dearest", []byte(rules))
	if err != nil {
		t.Fatal(err)
	}
	return NewEngine(memory.New(), p)
}

// dear is a request by its parts: of each of them a client may make up what it likes.
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

// repeat fills size bytes with a unit between a beginning and an end.
func repeat(start, unit, end string, size int) string {
	return start + strings.Repeat(unit, max(0, size-len(start)-len(end))/len(unit)) + end
}

// dearest are the dearest requests of their kind, found by hand and by BenchmarkDearestSearch.
var dearest = map[string]func(d *dear, size int){
	"path of dots":            func(d *dear, n int) { d.path = repeat("/", "a/../", "auth/login", n) },
	"path of escaped slashes": func(d *dear, n int) { d.path = repeat("/auth", "%2f", "login", n) },
	"path of mixed escapes":   func(d *dear, n int) { d.path = repeat("/auth", "%252f%5c;a/../", "login", n) },
	"path of ends":            func(d *dear, n int) { d.path = repeat("/auth", "%23%2f../", "login", n) },
	"path of letters":         func(d *dear, n int) { d.path = repeat("/auth/login", "%41", "", n) },
	"path of segments":        func(d *dear, n int) { d.path = repeat("/auth/login", "/a", "", n) },
	"JSON of members":         func(d *dear, n int) { d.body = repeat(`{`, `"":1,`, `"username":"alice"}`, n) },
	"JSON of similar names":   func(d *dear, n int) { d.body = repeat(`{`, `"username.":1,`, `"username":"alice"}`, n) },
	"JSON of marks": func(d *dear, n int) {
		d.body = repeat(`{`, `"`+strings.Repeat(".\u200b", min(n, 960)/4)+`":1,`, `"username":"alice"}`, n)
	},
	"JSON of escaped names":        func(d *dear, n int) { d.body = repeat(`{`, `"\u0075":1,`, `"username":"alice"}`, n) },
	"JSON of one escaped name":     func(d *dear, n int) { d.body = repeat(`{"`, `\u0075`, `":1}`, n) },
	"JSON of brackets":             func(d *dear, n int) { d.body = repeat(`{"username":"alice","a":[`, `[],`, `1]}`, n) },
	"JSON of pairs":                func(d *dear, n int) { d.body = repeat(`{"username":"alice","a":"`, `&username.`, `"}`, n) },
	"JSON of empty pairs":          func(d *dear, n int) { d.body = repeat(`{"username":"alice","a":"`, `&;`, `"}`, n) },
	"JSON, deep":                   func(d *dear, n int) { d.body = repeat(``, `{"a":`, ``, n) },
	"form of fields":               func(d *dear, n int) { d.kind, d.body = formType, repeat("", "a&", "username=alice", n) },
	"form of escaped fields":       func(d *dear, n int) { d.kind, d.body = formType, repeat("", "%75;", "username=alice", n) },
	"form of similar fields":       func(d *dear, n int) { d.kind, d.body = formType, repeat("", "u.s.e.r.n;", "username=alice", n) },
	"form of short similar fields": func(d *dear, n int) { d.kind, d.body = formType, repeat("", "u.;", "username=alice", n) },
	"form, a long name":            func(d *dear, n int) { d.kind, d.body = formType, repeat("", "u.", "=alice", n) },
	"form, a long value":           func(d *dear, n int) { d.kind, d.body = formType, repeat("username=", "%41", "", n) },
	"multipart of fields": func(d *dear, n int) {
		d.kind = "multipart/form-data; boundary=x"
		d.body = repeat("", "--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n\r\n", "--x--\r\n", n)
	},
	"name of ligatures":    func(d *dear, n int) { d.body = repeat(`{"username":"`, "\uFDFA", `"}`, n) },
	"name of Hangul":       func(d *dear, n int) { d.body = repeat(`{"username":"`, "각", `"}`, n) },
	"name of marks":        func(d *dear, n int) { d.body = repeat(`{"username":"a`, "\u0323\u0301", `"}`, n) },
	"name of wide letters": func(d *dear, n int) { d.body = repeat(`{"username":"`, "𝒶", `"}`, n) },
	"query of pairs":       func(d *dear, n int) { d.query = repeat("", "q.=1;", "", n) },
	"cookie of pairs":      func(d *dear, n int) { d.cookie = repeat("", "a=;", "", n) },
	"cookie of dots":       func(d *dear, n int) { d.cookie = repeat("", "s.=;", "", n) },
	"cookie of marks":      func(d *dear, n int) { d.cookie = repeat("", "\u200b=;", "", n) },
	"cookie of brackets":   func(d *dear, n int) { d.cookie = repeat("", ".[=;", "", n) },
	"cookie of semicolons": func(d *dear, n int) { d.cookie = repeat("", ";", "", n) },
	"cookie of commas":     func(d *dear, n int) { d.cookie = repeat("a=", ",", "", n) },
	"token of claims":      func(d *dear, n int) { d.token = claims(repeat(`{`, `"":1,`, `"sub":1}`, n*3/4)) },
	"token of rubbish":     func(d *dear, n int) { d.token = repeat("", ".", "", n) },
	"long host":            func(d *dear, n int) { d.host = repeat("", "a.", "example.com", n) },
}

// BenchmarkDearest decides about the dearest requests of each kind, as large as the gateway
// lets them be. "plain" is what all of them are measured by.
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
	for _, size := range []int{1 << 10, maxBody - 1} {
		for name, make := range dearest {
			d := plainLogin()
			make(&d, size)
			run(fmt.Sprintf("%dK/%s", (size+1)>>10, name), d)
		}
	}
}

// BenchmarkDearestSearch looks for requests that cost more than those of BenchmarkDearest: it
// changes one after the other at random, and goes on with what has become dearer. It prints
// what it ends with. Give it time by -benchtime 10000x; -benchtime decides how many changes
// are tried.
func BenchmarkDearestSearch(b *testing.B) {
	e := dearestEngine(b)
	seed := uint64(time.Now().UnixNano())
	b.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for _, size := range []int{1 << 10, maxBody - 1} {
		var worst dear
		var most time.Duration
		for range max(b.N, len(dearest)) {
			d := worst
			if most == 0 || r.IntN(20) == 0 {
				d = plainLogin()
			}
			mutate(r, &d, size)
			if cost := cheapest(b, e, d.request(), most); cost > most {
				worst, most = d, cost
			}
		}
		b.ReportMetric(float64(most.Microseconds()), fmt.Sprintf("us/%dK", (size+1)>>10))
		b.Logf("%v: %.200q", most, worst)
	}
}

// cheapest is the cheapest of several times, so that what disturbs one of them does not count,
// and of one if that is cheap enough.
func cheapest(b *testing.B, e *Engine, r *Request, enough time.Duration) time.Duration {
	least := time.Hour
	for range 7 {
		start := time.Now()
		e.Decide(b.Context(), r)
		if least = min(least, time.Since(start)); least <= enough {
			break
		}
	}
	return least
}

// mutate changes one part of a request, which then has at most size bytes.
func mutate(r *rand.Rand, d *dear, size int) {
	units := []string{
		"/", "//", "../", "%2f", "%5c", "%252f", ";", "&", "=", "a", "a=b&", ".", "[", "]", "%41", "%75", "\\", "%23", "%3f", "\"", "{", "}", ":", ",", "username", "u", "_",
		`"a":1,`, `"username":`, `\u0075`, "\uFDFA", "e\u0301", "ß", "각", "𝒶", "\u200b", "+", " ", "--x", "\r\n", "%u0041", "%c0%af", "'", "é", "ſ",
	}
	texts := []*string{&d.path, &d.query, &d.body, &d.cookie, &d.host}
	text := texts[r.IntN(len(texts))]
	d.kind = []string{d.kind, d.kind, jsonType, formType, "", "multipart/form-data; boundary=x"}[r.IntN(6)]
	unit := units[r.IntN(len(units))]
	for range r.IntN(4) {
		unit += units[r.IntN(len(units))]
	}
	at := r.IntN(len(*text) + 1)
	end := min(len(*text), at+r.IntN(8))
	room := max(0, size-(len(d.path)+len(d.query)+len(d.body)+len(d.cookie)+len(d.host)))
	n := 1
	if r.IntN(2) == 0 {
		n = room / len(unit)
	}
	if n*len(unit) <= room {
		*text = (*text)[:at] + strings.Repeat(unit, n) + (*text)[end:]
	}
	if text == &d.path && !strings.HasPrefix(d.path, "/") {
		d.path = "/" + d.path
	}
}
