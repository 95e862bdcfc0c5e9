//go:build long

package frameworks

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// wordsText has lists of words under headings. Each word is quoted as in Go.
//
//go:embed testdata/words.txt
var wordsText string

var words = readWords(wordsText)

func readWords(text string) map[string][]string {
	all, heading := map[string][]string{}, ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, found := strings.CutPrefix(line, "# "); found {
			heading, line = name, ""
		}
		for line != "" {
			quoted, err := strconv.QuotedPrefix(line)
			if err != nil {
				panic(fmt.Sprintf("%v: %s", err, line))
			}
			word, _ := strconv.Unquote(quoted)
			all[heading] = append(all[heading], word)
			line = strings.TrimLeft(line[len(quoted):], " ")
		}
	}
	return all
}

// A grammar makes odd requests, which depend only on its seed.
type grammar struct {
	*rand.Rand
	// calm is the number of usual parts for each odd one: a request with only one odd part is less likely to be
	// rejected because of another part.
	calm int
}

func newGrammar(seed uint64) grammar { return grammar{rand.New(rand.NewPCG(seed, 8)), 1} }

// usually returns usual, and now and then one of odd.
func (g grammar) usually(usual string, odd ...string) string {
	if g.one(g.calm) {
		return pick(g, odd...)
	}
	return usual
}

func pick[T any](g grammar, of ...T) T { return of[g.IntN(len(of))] }

// one returns true once in n times.
func (g grammar) one(n int) bool { return g.IntN(n) == 0 }

// shuffled shuffles items, and returns them.
func shuffled[T any](g grammar, items []T) []T {
	g.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return items
}

var kindsByWeight = []string{
	"ip", "ip", "ip", "ip", "body", "body", "body", "body", "body", "skip", "skip", "skip", "skip",
	"query", "query", "cookie", "cookie", "header", "host",
}

// request returns an odd request for a used up account.
func (g grammar) request() string {
	g.calm = pick(g, 2, 6, 20, 60)
	kind, name := pick(g, kindsByWeight...), pick(g, accounts...)
	r := &draft{
		grammar: g, kind: kind, name: name,
		method: "POST", path: "/" + kind + "/login", version: "HTTP/1.1",
		fields: []string{"Host: login.test", "X-Trial: " + trial},
	}
	switch reads[kind] {
	case "body":
		r.oddBody()
	case "query":
		r.query = g.pairs(name)
	case "cookie":
		r.fields = append(r.fields, g.cookies(name)...)
	case "header":
		r.fields = append(r.fields, g.names(name)...)
	case "host":
		r.oddHost()
	}
	if kind == "ip" || g.one(6) {
		r.path = g.oddPath(r.path)
		r.target = g.oddTarget(r.path)
	}
	if kind == "ip" && g.one(3) || g.one(12) {
		r.oddHead()
	}
	return r.text()
}

// A draft is a request in the making.
type draft struct {
	grammar
	kind, name                           string
	method, target, path, query, version string
	fields                               []string
	body                                 string
	framed                               bool // the fields already contain the length of the body
	after                                string
}

func (r *draft) add(fields ...string) { r.fields = append(r.fields, fields...) }

func (r *draft) text() string {
	if r.target == "" {
		r.target = r.path
	}
	if r.query != "" {
		r.target += "?" + r.query
	}
	if !r.framed {
		r.frame()
	}
	if r.one(8) {
		r.fields = shuffled(r.grammar, r.fields)
	}
	return r.method + " " + r.target + " " + r.version + "\r\n" + strings.Join(append(r.fields, "", ""), "\r\n") + r.body + r.after
}

// frame adds fields for the length of the body, which are odd now and then.
func (r *draft) frame() {
	length := fmt.Sprintf("Content-Length: %d", len(r.body))
	if !r.one(10) {
		r.add(length)
		return
	}
	chunks := r.chunked()
	switch r.IntN(8) {
	case 0:
		r.add(length, length)
	case 1:
		r.add(fmt.Sprintf("Content-Length: %d, %d", len(r.body), len(r.body)))
	case 2:
		r.add(r.usually("Transfer-Encoding: chunked", "Transfer-Encoding: Chunked", "Transfer-Encoding:\tchunked ", "transfer-encoding:chunked"))
		r.body = chunks
	case 3:
		r.add(length, "Transfer-Encoding: chunked")
		r.body = chunks
	case 4:
		r.add(pick(r.grammar, "Transfer-Encoding: identity, chunked", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: \x0bchunked", "Transfer-Encoding : chunked", "Transfer_Encoding: chunked"))
		if r.one(2) {
			r.add(length)
		} else {
			r.body = chunks
		}
	case 5:
		r.add(fmt.Sprintf("Content-Length: %s%d", pick(r.grammar, "+", "0", " ", "0x"), len(r.body)))
	case 6: // two requests that look like one
		r.add("Content-Length: 0")
		r.after = r.second()
	case 7:
		r.add(length, "Connection: "+pick(r.grammar, "Content-Length", "Transfer-Encoding", "close, Content-Length"))
	}
}

// chunked returns the body in chunks.
func (r *draft) chunked() string {
	var b strings.Builder
	for rest := r.body; rest != ""; {
		n := 1 + r.IntN(len(rest))
		fmt.Fprintf(&b, "%s%x%s\r\n%s\r\n", pick(r.grammar, "", "", "0"), n, pick(r.grammar, "", "", ";a=b", `;a="x"`), rest[:n])
		rest = rest[n:]
	}
	trailer := ""
	if field := pick(r.grammar, "", "", "X-User-Name: "+r.name, "Content-Type: "+formType, "Content-Type: "+jsonType, "Cookie: user_name="+r.name, "Host: login.test", "Content-Encoding: identity"); field != "" {
		trailer = field + "\r\n"
		if name, _, _ := strings.Cut(field, ":"); r.one(2) {
			r.add("Trailer: " + name)
		}
	}
	return b.String() + "0\r\n" + trailer + "\r\n"
}

// second returns a request that follows on the same connection.
func (r *draft) second() string { return plain(r.kind, reads[r.kind], "form", r.name) }

// oddHead changes the head of the request.
func (r *draft) oddHead() {
	g := r.grammar
	switch g.IntN(12) {
	case 0:
		r.method = pick(g, "post", "Post", "GET", "HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "QUERY", "LOGIN", "DELETE", "POST\x0b", "CONNECT")
	case 1:
		r.add(pick(g, "X-HTTP-Method-Override: ", "X-HTTP-Method: ", "X-Method-Override: ") + pick(g, "POST", "GET", "post", "PUT"))
		r.method = pick(g, "GET", "POST", "PUT")
	case 2:
		r.add(pick(g, "X-Original-URL: ", "X-Rewrite-URL: ", "X-Original-Uri: ", "X-Forwarded-Uri: ", "X-Forwarded-Prefix: ", "X-Script-Name: ", "Script-Name: ", "Path-Info: ") + pick(g, r.path, "/x", "/"+r.kind))
		if g.one(2) {
			r.path, r.target = "/login", ""
		}
	case 3:
		r.add("Connection: "+pick(g, "Content-Type", "Cookie", "Host", "X-User-Name", "X-Forwarded-For", "Authorization, Content-Type", "close, content-type", "Upgrade", "keep-alive", "Content-Encoding", "Keep-Alive, X-User-Name"),
			pick(g, "Keep-Alive: 1", "Proxy-Connection: Content-Type", "TE: trailers"))
	case 4:
		r.version = pick(g, "HTTP/1.0", "HTTP/1.1 ", "HTTP/1.2", "HTTP/2.0", "http/1.1", "HTTP/0.9", "HTTP/01.1")
	case 5:
		r.add("Expect: " + pick(g, "100-continue", "100-Continue", "200-ok", "100-continue, x"))
	case 6:
		r.upgrade()
	case 7:
		r.after = r.second()
	case 8:
		r.add(pick(g, "X-Forwarded-For: ", "X-Real-IP: ", "True-Client-IP: ", "X-Client-IP: ", "CF-Connecting-IP: ", "X_Forwarded_For: ") + pick(g, "192.0.2.77", "127.0.0.1, 192.0.2.9", "::1"))
	case 9:
		r.add(pick(g, "X-Forwarded-Host: ", "X-Forwarded-Server: ", "X-Host: ", "X-Forwarded-Proto: ", "Forwarded: host=", "X_Forwarded_Host: ") + pick(g, "login.test", "x", "a, login.test"))
	case 10:
		r.add(pick(g, "Content-Type: x\r\n folded", " X-Folded: 1", "X-Null: a\x00b", "X-Bare: a\nX-User-Name: "+r.name, "X-CR: a\rX-User-Name: "+r.name, ": x", "X Space: 1", "Content_Type: application/json", "Content-type: application/json"))
	case 11:
		r.add("Host: "+pick(g, "x", "login.test", "login.test:80"), "X-Two: hosts")
	}
}

// upgrade requests another protocol, in which more requests follow.
func (r *draft) upgrade() {
	g := r.grammar
	r.add("Connection: "+pick(g, "Upgrade, HTTP2-Settings", "upgrade, http2-settings", "Upgrade"),
		"Upgrade: "+pick(g, "h2c", "H2C", "h2c, websocket", "websocket, h2c", "HTTP/2.0", "TLS/1.0", "websocket", "h2c\t"),
		"HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")
	if g.one(2) {
		r.add("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13")
	}
	r.method = pick(g, "GET", "POST")
	r.path, r.target = pick(g, r.path, "/"), ""
	switch g.IntN(3) {
	case 0:
		r.after = tunnel + r.second()
	case 1:
		r.after = tunnel + http2Request(r.kind)
	}
}

// oddHost replaces the Host of the login by host with another one that some servers take for it.
func (r *draft) oddHost() {
	g := r.grammar
	if g.one(4) {
		r.target = pick(g, "http://login.test", "http://LOGIN.test:80", "http://x@login.test", "http://login.test.", "http://x", "https://login.test", "http://login.test%2f") + r.path
	}
	r.fields[0] = "Host: " + pick(g, "login.test.", "LOGIN.TEST", "login.test:80", "login.test:", "login.test:abc", "login.test:443", "x@login.test", "login.test@x",
		"x, login.test", "login.test, x", "login.test/", "login.test#", "login%2etest", "\tlogin.test", "login.test\t", "x", "", "login。test", "login.test..",
		"http://login.test", "login.test\\x", "[login.test]", "login.test:80:80", "x:80@login.test", "login.test;x", "login.test?x", "l\u00adogin.test", "ｌogin.test", "login.te\u017ft")
	if g.one(4) {
		r.add(pick(g, "X-Forwarded-Host: ", "Forwarded: host=", "X-Host: ", "X-Forwarded-Server: ", "X-Original-Host: ", "X_Forwarded_Host: ") + "login.test")
	}
}
