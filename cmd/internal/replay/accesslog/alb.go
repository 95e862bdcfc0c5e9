package accesslog

import (
	"bytes"
	"errors"
)

var (
	errALB     = errors.New("not a line of a load balancer's log, or one whose quotes can be read in several ways")
	errRequest = errors.New("the request line has no target")
)

// alb reads the log of AWS' Application Load Balancer: fields separated by blanks, some of them in quotes. Nothing
// is escaped within the quotes. AWS adds new fields at the end of the line.
func alb(Options) *Format {
	return &Format{
		Name: "alb",
		Tells: Tells{
			Client: true, Host: true, Query: true, UserAgent: true, Began: true, Sent: true, Fine: true,
		},
		line: albLine,
	}
}

// The indexes of the fields. The fields from albQuoted on are in quotes.
const (
	albType, albTime, albClient, albStatus, albSent = 0, 1, 3, 8, 11

	albQuoted = 12
)

func albLine(line []byte, e *Entry) error {
	var field [albQuoted][]byte
	for i := range field {
		end := bytes.IndexByte(line, ' ')
		if end <= 0 {
			return errALB
		}
		field[i], line = line[:end], line[end+1:]
	}
	switch string(field[albType]) {
	case "http", "https", "h2", "grpcs", "ws", "wss":
	default:
		return errALB
	}
	end, ok := isoTime(field[albTime], nil)
	if !ok {
		return errTime
	}
	if s := field[albStatus]; string(s) != "-" {
		n, ok := integer(s)
		if !ok || n > 999 {
			return errStatus
		}
		e.Status = int(n)
	}
	if n, ok := integer(field[albSent]); ok {
		e.Sent = n
	}
	colon := bytes.LastIndexByte(field[albClient], ':')
	if colon <= 0 {
		return errClient
	}
	if e.Client = field[albClient][:colon]; e.Client[0] == '[' {
		e.Client = bytes.Trim(e.Client, "[]")
	}

	// Within the request, no quote is followed by a blank and a quote, because the URL contains no blank.
	if len(line) == 0 || line[0] != '"' {
		return errALB
	}
	request, rest, ok := bytes.Cut(line[1:], []byte(`" "`))
	if !ok {
		return errALB
	}
	agent, began, ok := albTail(rest)
	if !ok {
		return errALB
	}
	if string(agent) != "-" {
		e.UserAgent = agent
	}
	e.Time, e.Duration = began, max(end-began, 0)
	method, url, ok := bytes.Cut(request, []byte(" "))
	if !ok {
		return errRequest
	}
	if string(method) != "-" {
		if proto := bytes.LastIndexByte(url, ' '); proto > 0 {
			url = url[:proto]
		}
		e.Method, e.Target = method, url
	}
	return nil
}

// albTail finds the end of the user agent, which may contain quotes, by the fields that follow: cipher, protocol,
// target group, "trace", "domain", "certificate", priority, time of the request. It fails if these fields could
// begin at several places.
func albTail(b []byte) (agent []byte, began int64, ok bool) {
	found := false
	for from := 0; ; {
		i := bytes.Index(b[from:], []byte(`" `))
		if i < 0 {
			return agent, began, found
		}
		i += from
		from = i + 1
		if at, ok := albAfter(b[i+2:]); ok {
			if found {
				return nil, 0, false
			}
			agent, began, found = b[:i], at, true
		}
	}
}

// albAfter reports whether b has the fields that follow the user agent, and returns the start of the request.
func albAfter(b []byte) (began int64, ok bool) {
	for _, quoted := range [...]bool{false, false, false, true, true, true, false} {
		var token []byte
		if quoted {
			if len(b) == 0 || b[0] != '"' {
				return 0, false
			}
			if _, b, ok = bytes.Cut(b[1:], []byte(`" `)); !ok {
				return 0, false
			}
		} else if token, b, ok = bytes.Cut(b, []byte(" ")); !ok || len(token) == 0 || bytes.IndexByte(token, '"') >= 0 {
			return 0, false
		}
	}
	at, _, _ := bytes.Cut(b, []byte(" "))
	return isoTime(at, nil)
}
