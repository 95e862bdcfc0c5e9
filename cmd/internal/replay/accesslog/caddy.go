package accesslog

import (
	"bytes"
	"slices"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// caddy reads Caddy's log of requests, in JSON. Times and durations may have any form that Caddy's encoder can
// write.
func caddy(o Options) *Format {
	const (
		message = whats + iota
		duration
		client
		headers
	)
	log := jsonLog{
		fields: []string{
			whatEnded: "ts", whatClient: "request.remote_ip request.remote_addr", whatMethod: "request.method", whatHost: "request.host",
			whatTarget: "request.uri", whatUser: "user_id", whatSent: "size", whatStatus: "status",
			message: "msg", duration: "duration", client: "request.client_ip", headers: "request.headers",
		},
		when: timeIn(o.Zone),
		begin: func(e *Entry) error {
			if !e.is(message, "handled request") {
				return ErrSkip // other loggers write to the same file
			}
			e.caddyTook(e.values[duration].raw)
			return nil
		},
		finish: func(e *Entry) error {
			e.caddyHeaders(e.values[headers].raw)
			if from := e.textIn(client); len(from) > 0 && len(e.Forwarded) == 0 {
				e.Client = from // Caddy has taken the address from another field, or from one that is not logged
			}
			return e.someClient()
		},
	}
	f := &Format{
		Name: "caddy",
		Tells: Tells{
			Client: true, Forwarded: true, User: true, Host: true, Query: true, Referer: true, UserAgent: true,
			AnyHeader: true, Hidden: credentials, Began: true, Sent: true, Fine: true,
		},
		line: log.reader(),
	}
	f.narrow = func(sample [][]byte) Tells {
		tells := f.Tells
		for e := range f.requests(sample) {
			if slices.ContainsFunc(e.Headers, func(h Field) bool { return isCredential(h.Name) }) {
				tells.Hidden = nil // the option log_credentials is on
			}
		}
		return tells
	}
	return f
}

// caddyTook reads a duration. A number with a fraction is in seconds, which is Caddy's default, and a text names
// its unit. A whole number is in milliseconds or nanoseconds. Small numbers can only be milliseconds, and large
// ones only nanoseconds; for numbers between these, the duration is unknown.
func (e *Entry) caddyTook(raw []byte) {
	shift := 6
	if len(raw) > 0 && raw[0] != '"' && !bytes.ContainsAny(raw, ".eE") {
		switch n, _ := scaled(raw, 0); {
		case n < 1_000:
			shift = 3 // no request is over within a microsecond
		case n >= 1_000_000:
			shift = -3 // no request takes longer than a quarter of an hour
		default:
			return
		}
	}
	if len(raw) > 1 && raw[0] == '"' {
		raw = raw[1 : len(raw)-1]
	}
	if n, ok := lasting(raw, shift); ok {
		e.Duration = n
	}
}

// credentials are the fields that Caddy redacts by default.
var credentials = []string{"Authorization", "Cookie", "Proxy-Authorization", "Set-Cookie"}

// caddyHeaders takes all logged fields of the header. It leaves out redacted credentials, which would make all
// clients one subject.
func (e *Entry) caddyHeaders(raw []byte) {
	if len(raw) == 0 || raw[0] != '{' {
		return
	}
	for name, values := range jsonscan.Members(raw) {
		if values[0] != '[' {
			continue
		}
		name := e.unescaped(name)
		if string(name) == "X-Forwarded-For" {
			e.Forwarded = e.joined(values)
			continue
		}
		for item := range jsonscan.Elements(values) {
			if item[0] != '"' {
				continue
			}
			text := e.unescaped(item[1 : len(item)-1])
			if string(text) != "REDACTED" || !isCredential(name) {
				e.header(name, text)
			}
		}
	}
}

func isCredential(name []byte) bool { return slices.Contains(credentials, string(name)) }
