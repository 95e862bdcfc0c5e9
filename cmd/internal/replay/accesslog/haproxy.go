package accesslog

import (
	"bytes"
	"time"
)

// haproxy reads the log of "option httplog" and "option httpslog", with any prefix that syslog adds.
func haproxy(o Options) *Format {
	return &Format{
		Name:  "haproxy",
		Tells: Tells{Client: true, Query: true, Began: true, Sent: true, Fine: true},
		line:  func(line []byte, e *Entry) error { return haproxyLine(line, e, o.Zone) },
	}
}

// haproxyLine reads
//
//	198.51.100.4:33317 [20/Nov/2026:10:15:32.655] http-in~ static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {captured} {captured} "GET / HTTP/1.1"
//
// Clients cannot choose the text before the cookies. In the text after them, quotes and braces are escaped.
func haproxyLine(line []byte, e *Entry, zone *time.Location) error {
	const width = len("20/Nov/2026:10:15:32.655")
	open := 0
	for {
		i := bytes.IndexByte(line[open:], '[')
		if i < 0 || len(line) < open+i+1+width+2 {
			return errShape
		}
		if open += i + 1; open > 1 && line[open-2] == ' ' && line[open+width-4] == '.' && line[open+width] == ']' && line[open+width+1] == ' ' {
			break // the bracket of a time, not that of haproxy[14389]
		}
	}
	peer := line[:open-2]
	peer = peer[bytes.LastIndexByte(peer, ' ')+1:]
	colon := bytes.LastIndexByte(peer, ':')
	if colon <= 0 {
		return errShape
	}
	var m moment
	if !m.logTime(line[open : open+width-4]) {
		return errTime
	}
	ms, ok := digits(line[open+width-3 : open+width])
	m.micros = int64(ms) * 1000
	at, real := m.unix(zone)
	if !ok || !real {
		return errTime
	}

	var fields [10][]byte // frontend, server, timers, status, bytes, cookies, states, connections, queues
	rest := line[open+width+2:]
	for i := range fields {
		fields[i], rest, _ = bytes.Cut(rest, space)
	}
	timers, status, sent := fields[2], fields[3], fields[4]
	switch {
	case bytes.HasSuffix(fields[0], []byte(":")):
		return ErrSkip // a line about a connection without a request: "frontend/1: SSL handshake failure"
	case bytes.Count(timers, slash) == 2:
		return ErrSkip // a line about a connection that is not HTTP
	case bytes.Count(timers, slash) != 4 || len(fields[7]) != 4 || bytes.Count(fields[8], slash) != 4 || bytes.Count(fields[9], slash) != 1:
		return errShape
	}
	for range 2 {
		if len(rest) > 0 && rest[0] == '{' {
			i := bytes.IndexByte(rest, '}')
			if i < 0 || len(rest) < i+2 || rest[i+1] != ' ' {
				return errShape
			}
			rest = rest[i+2:]
		}
	}
	if len(rest) == 0 || rest[0] != '"' {
		return errShape
	}
	// Syslog may have cut the line. The target is then the part that is left.
	r, _, whole := bytes.Cut(rest[1:], quote)
	r = e.unhex(r, '#')
	if e.Method, e.Target = requestLine(r); !whole && e.Target == nil {
		if method, target, ok := bytes.Cut(r, space); ok && len(target) > 0 {
			e.Method, e.Target = method, target
		}
	}

	e.Client, e.Time = peer[:colon], at
	if e.Status, ok = digits(status); !ok || e.Status > 999 {
		if string(status) != "-1" {
			return errNumber
		}
		e.Status = 0
	}
	if e.Sent, ok = integer(bytes.TrimPrefix(sent, plus)); !ok {
		return errNumber
	}
	total := bytes.TrimPrefix(timers[bytes.LastIndexByte(timers, '/')+1:], plus)
	if d, ok := decimal(total, 1e3); ok {
		e.Duration = d
	} else if string(total) != "-1" {
		return errNumber
	}
	return nil
}

var slash, quote, space, plus = []byte("/"), []byte(`"`), []byte(" "), []byte("+")
