//go:build long

package frameworks

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"

	"golang.org/x/net/http2/hpack"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"
)

const formType, jsonType = "application/x-www-form-urlencoded", "application/json"

// oddBody puts the name into a body, or into a query that some servers read instead.
func (r *draft) oddBody() {
	g := r.grammar
	boundary := g.usually("b", "--b", "b b", "b\"", "")
	kind := ""
	switch g.IntN(8) {
	case 0, 1, 2:
		kind, r.body = formType, g.pairs(r.name)
	case 3, 4:
		kind, r.body = jsonType, g.json(r.name)
	case 5:
		kind, r.body = pick(g, jsonType, formType), g.polyglot(r.name)
	case 6:
		kind, r.body = "multipart/form-data; boundary="+boundary, g.multipart(boundary, r.name)
	case 7:
		r.query = g.pairs(r.name)
		if g.one(2) {
			kind, r.body = formType, pick(g, g.pairs(r.name), "", "user_name="+decoyA, "a=b")
		}
	}
	if g.one(4) {
		r.padded()
	}
	r.typed(kind)
	if g.one(10) {
		r.packed()
	}
	if g.one(6) {
		r.add(pick(g, "Connection: Content-Type", "Connection: content-type, close", "Connection: Content-Length", "Connection: content-encoding", "Connection: Content-Type, Content-Encoding"))
	}
}

// padded makes the body longer than some servers read.
func (r *draft) padded() {
	if !r.one(6) || strings.HasPrefix(r.body, "{") {
		return
	}
	filler := strings.Repeat(pick(r.grammar, "a=&", "a&", "&", "a[]=1&", "a[b][c]=1&"), pick(r.grammar, 999, 1000, 1001, 2000, 4095))
	if r.one(2) {
		r.body = filler + r.body
	} else {
		r.body = r.body + "&" + filler + "user_name=" + decoyA
	}
}

// typed adds a Content-Type, which is usually right.
func (r *draft) typed(kind string) {
	g := r.grammar
	if g.one(2) || !g.one(g.calm) {
		if kind != "" {
			r.add("Content-Type: " + kind)
		}
		return
	}
	other := pick(g, kind, kind, kind, formType, jsonType, "text/plain", "multipart/form-data; boundary=b", "")
	switch g.IntN(9) {
	case 0, 1:
		r.add("Content-Type: " + other)
	case 2:
		r.add("Content-Type: "+other, pick(g, "Content-Type: ", "Content_Type: ", "content-type:")+pick(g, kind, formType, jsonType, "x", ""))
	case 3:
		r.charset(other)
	case 4:
		r.add("Content-Type: " + strings.Replace(other, "application/", pick(g, "Application/", "application /", "application\t/", " application/", "APPLICATION/", "text/", "x/", "application%2f", "application\\"), 1))
	case 5:
		r.add("Content-Type: " + other + pick(g, "-x", ";", "; ", ",", ", "+formType, ", "+jsonType, ","+jsonType, "; charset", "; charset=", "; x=\"", "; boundary=b", " ;a=b", "\t", "x", "+json", "; a=\"; charset=utf-16\"", ";;", "; =", " x", "\x0b", "\xa0", "(comment)", "; charset=utf-8; charset=utf-16", "; boundary=b; boundary=c", "; profile=x", ";"+formType, "; q=1, "+formType, "\x00", " "+formType))
	case 6:
		r.add("Content-Type: " + pick(g, formType+"-x", formType+"x", "x-www-form-urlencoded", "www-form-urlencoded", "application/www-form-urlencoded", "application/x-url-encoded", "application/vnd.api+json", "application/jsonx", "application/csp-report", "text/json", "application/x-json", "application/json-patch+json", "application/json5",
			"application/ld+json", "application/octet-stream", "*/*", "application/*", "json", "form", "x", "text/html", "application/xml", "multipart/mixed; boundary=b", "multipart/related; boundary=b", "multipart/form-data", "multipart/x; boundary=b", "application/graphql", "application/x-ndjson", "text/plain; "+formType, jsonType+", "+formType, formType+", "+jsonType, "foo, "+jsonType, "application/json/"+formType))
	case 7:
		r.add("Content-Type:" + pick(g, "", " ", "\t") + other)
	case 8:
		r.add(pick(g, "Content-type: ", "CONTENT-TYPE: ", "Content-Type:\t", "Content_Type: ", "X-Content-Type: ", "Content-Type: \"") + other)
	}
}

// encodings are the encodings in which some framework decodes a body.
var encodings = map[string]encoding.Encoding{
	"utf-16": unicode.UTF16(unicode.BigEndian, unicode.UseBOM), "utf-16le": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "utf-16be": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"utf-32": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), "utf-32le": utf32.UTF32(utf32.LittleEndian, utf32.IgnoreBOM), "utf-32be": utf32.UTF32(utf32.BigEndian, utf32.IgnoreBOM),
	"ibm037": charmap.CodePage037, "cp037": charmap.CodePage037, "cp500": charmap.CodePage037, "iso-8859-1": charmap.ISO8859_1, "windows-1252": charmap.Windows1252, "koi8-r": charmap.KOI8R,
	"shift_jis": japanese.ShiftJIS, "iso-2022-jp": japanese.ISO2022JP,
}

// charset encodes the body, and usually adds the name of the encoding.
func (r *draft) charset(kind string) {
	g := r.grammar
	names := []string{"utf-16", "utf-16le", "utf-16be", "utf-32", "utf-32le", "utf-32be", "ibm037", "cp037", "cp500", "iso-8859-1", "windows-1252", "koi8-r", "shift_jis", "iso-2022-jp"}
	name := pick(g, append(names, "utf-7", "base64", "hex", "latin1", "utf8", "UTF-8", "ascii", "idna", "punycode", "unicode_escape", "rot13", "x", "utf-8'x'", "\"utf-8\"", "\"utf-16\"")...)
	switch e, known := encodings[name]; {
	case known:
		if text, err := e.NewEncoder().String(r.body); err == nil {
			r.body = text
		}
	case name == "utf-7":
		r.body = strings.NewReplacer("u", "+AHU-", "&", "+ACY-", "=", "+AD0-").Replace(r.body)
	case name == "unicode_escape":
		r.body = strings.ReplaceAll(r.body, "u", "\\u0075")
	case name == "base64":
		r.body = base64.StdEncoding.EncodeToString([]byte(r.body))
	case name == "hex":
		r.body = hex.EncodeToString([]byte(r.body))
	case name == "rot13":
		r.body = strings.Map(rot13, r.body)
	}
	if g.one(6) {
		r.add("Content-Type: " + kind)
		return
	}
	r.add("Content-Type: " + kind + g.usually("; charset=", "; Charset=", ";charset= ", "; charset*=utf-8''", "; charset=utf-8; charset=", "; a=b; charset=", ", charset=", "; charset =", ";\tcharset=", "; encoding=", "; _charset_=") + name)
}

func rot13(c rune) rune {
	switch {
	case 'a' <= c && c <= 'z':
		return 'a' + (c-'a'+13)%26
	case 'A' <= c && c <= 'Z':
		return 'A' + (c-'A'+13)%26
	}
	return c
}

// packed compresses the body, and usually adds the name of the compression.
func (r *draft) packed() {
	g := r.grammar
	var b bytes.Buffer
	encoding := pick(g, "gzip", "x-gzip", "GZIP", "deflate", "identity", "gzip, identity", "identity, gzip", "br", "", "gzip;q=1", "compress", "aws-chunked", "gzip, gzip", "\tgzip")
	switch {
	case g.one(4):
	case strings.Contains(encoding, "deflate"):
		w := zlib.NewWriter(&b)
		_, _ = w.Write([]byte(r.body))
		_ = w.Close()
		r.body = b.String()
	default:
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(r.body))
		_ = w.Close()
		r.body = b.String()
	}
	if !g.one(6) {
		r.add(g.usually("Content-Encoding: ", "Content_Encoding: ", "Transfer-Encoding: ", "content-encoding:") + encoding)
	}
}

// multipart returns a multipart form.
func (g grammar) multipart(boundary, name string) string {
	parts := []string{g.part(g.fieldName(), g.effective(name))}
	if g.one(3) {
		parts = []string{g.part("a", pick(g, g.glued(name), g.polyglot(name), g.json(name), "&"+g.pairs(name)+"&", "\r\n"+g.pairs(name)+"\r\n"))}
	}
	for range 1 + g.IntN(2) {
		parts = append(parts, g.part(pick(g, "user_name", g.fieldName()), pick(g, decoyA, decoyB)))
	}
	eol := g.usually("\r\n", "\n")
	dashes := g.usually("--", "-", "")
	var b strings.Builder
	b.WriteString(g.usually("", "user_name="+decoyA+"&", "{\"user_name\":\""+decoyA+"\",\"a\":\"", "preamble\r\n"))
	for _, part := range shuffled(g, parts) {
		b.WriteString(dashes + strings.Trim(boundary, `"`) + eol + strings.ReplaceAll(part, "\r\n", eol) + eol)
	}
	b.WriteString("--" + boundary + g.usually("--", "--\r\n", "", "-") + g.usually("", "&user_name="+decoyA, "\"}", "\r\nepilogue"))
	return b.String()
}

func (g grammar) part(field, value string) string {
	disposition := g.usually("Content-Disposition: form-data; name=%q", "content-disposition: form-data; name=%q", "Content-Disposition: form-data; name=%s", "Content-Disposition: form-data; name*=utf-8''%s",
		"Content-Disposition: form-data; name=\"x\"; name=%q", "Content-Disposition: form-data; name=%q; filename=\"\"", "Content-Disposition: form-data; name=%q; filename=\"a\"", "Content-Disposition: attachment; name=%q", "Content-Disposition: form-data;name=%q", "Content-Disposition:form-data;\r\n name=%q",
		"Content-Disposition: form-data; filename=\"; name=x\"; name=%q", "Content-Disposition: form-data; name='%s'", "Content-Disposition: form-data; NAME=%q", "Content-Disposition: form-data; x=\"\\\"; name=%q", "Content-Type: text/plain; name=%q")
	return fmt.Sprintf(disposition, field) + g.usually("", "\r\nContent-Type: text/plain; charset=utf-16", "\r\nContent-Transfer-Encoding: base64", "\r\nContent-Type: application/json", "\r\nContent-Length: 1") + "\r\n\r\n" + value
}

// http2Request returns the start of an HTTP/2 connection, with a login.
func http2Request(kind string) string {
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", "/" + kind + "/login?user_name=alice"}, {":authority", "login.test"}, {"x-trial", trial}, {"cookie", "user_name=alice"}, {"x-user-name", "alice"}} {
		_ = e.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	n := block.Len()
	return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00" +
		string([]byte{byte(n >> 16), byte(n >> 8), byte(n), 1, 5, 0, 0, 0, 3}) + block.String()
}
