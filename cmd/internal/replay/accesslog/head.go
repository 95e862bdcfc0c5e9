package accesslog

import "bytes"

// headed returns how many pieces the format has in common with combined, at its begin: all of combined's
// or none. As most formats begin so, these are read by hand where a line has nothing unusual.
func (t *text) headed() int {
	want := []struct {
		what what
		lit  string
	}{
		{valClient, " "}, {valNothing, " "}, {valUser, " ["}, {valLogTime, `] "`}, {valRequest, `" `}, {valStatus, " "}, {valSent, ` "`}, {valReferer, `" "`}, {valUserAgent, `"`},
	}
	n := len(t.pieces)
	if n > 0 && t.pieces[0].lit == " - " { // the name by ident is a literal of nginx's
		want = append(want[:0:0], want[0], want[2], want[3], want[4], want[5], want[6], want[7], want[8])
		want[0].lit = " - "
	}
	if t.prefix != "" || n < len(want) || !t.escapes || t.doubt {
		return 0
	}
	for i, w := range want {
		p := &t.pieces[i]
		// The last may go on, into a literal that is longer.
		if p.what != w.what && !(p.what == valSentSome && w.what == valSent) || p.lit != w.lit && !(i == len(want)-1 && p.lit[:1] == w.lit) {
			return 0
		}
	}
	return len(want)
}

// head reads the pieces of combined and returns the index of what follows the quote of the last, or -1
// where something is unusual, which is no error yet. The first backslash is at slash, beyond the line if
// there is none: most values of most lines lie before it.
func (t *text) head(line []byte, slash int, e *Entry, m *moment) int {
	i := bytes.IndexByte(line, ' ')
	if i <= 0 || len(line) < i+len(` - - [20/Nov/2026:10:15:32 +0100] "`) || line[i+1] != '-' || line[i+2] != ' ' {
		return -1
	}
	client, rest := line[:i], line[i+3:]
	n := 1
	if rest[0] != '-' || rest[1] != ' ' || rest[2] != '[' {
		if n = t.pieces[t.headLen-7].end(rest); n < 0 {
			return -1
		}
		e.User = e.plain(rest[:n], slash < len(line)-len(rest)+n)
		if string(e.User) == `""` {
			e.User = nil
		}
		if rest = rest[n:]; len(rest) < len(` [20/Nov/2026:10:15:32 +0100] "`) {
			return -1
		}
		n = 0
	}
	rest = rest[n+2:]
	if len(rest) < 29 || rest[26] != ']' || rest[27] != ' ' || rest[28] != '"' || !m.logTime(rest[:26]) {
		return -1
	}
	rest = rest[29:]
	n, escaped := quoted(line, rest, slash)
	if n < 0 || len(rest) < n+9 || rest[n+1] != ' ' || rest[n+5] != ' ' {
		return -1
	}
	request := e.plain(rest[:n], escaped)
	a, b, c := rest[n+2]-'0', rest[n+3]-'0', rest[n+4]-'0'
	if a > 9 || b > 9 || c > 9 {
		return -1
	}
	rest = rest[n+6:]
	sent := int64(0)
	n = 0
	for n < len(rest) && n < 18 && rest[n]-'0' <= 9 {
		sent = sent*10 + int64(rest[n]-'0')
		n++
	}
	if n == 0 || len(rest) < n+2 || rest[n] != ' ' || rest[n+1] != '"' {
		return -1
	}
	rest = rest[n+2:]
	if n, escaped = quoted(line, rest, slash); n < 0 || len(rest) < n+3 || rest[n+1] != ' ' || rest[n+2] != '"' {
		return -1
	}
	referer := e.plain(rest[:n], escaped)
	rest = rest[n+3:]
	if n, escaped = quoted(line, rest, slash); n < 0 {
		return -1
	}
	e.UserAgent, e.Referer, e.Sent = e.plain(rest[:n], escaped), referer, sent
	e.Method, e.Target = requestLine(request)
	e.Status = int(a)*100 + int(b)*10 + int(c)
	if len(client) != 1 || client[0] != '-' {
		e.Client = e.plain(client, slash < i)
	}
	return len(line) - len(rest) + n + 1
}

// quoted returns the length of a value that rest, the end of the line, begins with, up to its quote, and
// whether it may have escapes. It is -1 if there is no quote.
func quoted(line, rest []byte, slash int) (n int, escaped bool) {
	n = bytes.IndexByte(rest, '"')
	if n < 0 || slash > len(line)-len(rest)+n {
		return n, false
	}
	return unquoted(rest, true), true
}

// plain returns a value without escapes, nil of "-".
func (e *Entry) plain(v []byte, escaped bool) []byte {
	if len(v) == 1 && v[0] == '-' {
		return nil
	}
	if escaped && bytes.IndexByte(v, '\\') >= 0 {
		return e.unescape(v)
	}
	return v
}
