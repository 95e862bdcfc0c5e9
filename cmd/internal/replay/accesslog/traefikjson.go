package accesslog

import (
	"bytes"
	"slices"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// traefikJSON reads Traefik's log of requests, in JSON.
func traefikJSON(o Options) *Format {
	log := jsonLog{
		fields: []string{
			whatClient: "ClientAddr", whatForwarded: "ClientHost", whatUser: "ClientUsername", whatBegan: "StartUTC StartLocal", whatEnded: "time",
			whatNanos: "Duration", whatMethod: "RequestMethod", whatTarget: "RequestPath", whatHost: "RequestAddr RequestHost",
			whatStatus: "DownstreamStatus", whatSent: "DownstreamContentSize",
		},
		when: timeIn(o.Zone),
		begin: func(e *Entry) error {
			if !e.has(whatMethod) && !e.has(whatTarget) {
				return ErrSkip // Traefik's own log
			}
			return nil
		},
		finish: func(e *Entry) error {
			// ClientHost is X-Forwarded-For, which may be a list, if Traefik trusts the field.
			if len(e.Client) == 0 {
				e.Client, e.Forwarded = e.Forwarded, nil
			} else if bytes.Equal(e.Forwarded, e.Client) {
				e.Forwarded = nil
			}
			return e.someClient()
		},
	}
	read := log.reader()
	f := &Format{
		Name: "traefik-json",
		Tells: Tells{
			Client: true, Forwarded: true, User: true, Host: true, Query: true, Referer: true, UserAgent: true,
			Began: true, Sent: true, Fine: true,
		},
		line: func(line []byte, e *Entry) error {
			if err := read(line, e); err != nil {
				return err
			}
			if bytes.Contains(line, requestField) {
				e.traefikHeaders(line)
			}
			return nil
		},
	}
	// Traefik's configuration decides which fields of the header are logged.
	f.narrow = func(sample [][]byte) Tells {
		tells := f.Tells
		tells.UserAgent, tells.Referer = false, false
		for e := range f.requests(sample) {
			tells.UserAgent = tells.UserAgent || len(e.UserAgent) > 0
			tells.Referer = tells.Referer || len(e.Referer) > 0
			for _, h := range e.Headers {
				if !slices.Contains(tells.Headers, string(h.Name)) && len(tells.Headers) < 100 {
					tells.Headers = append(tells.Headers, string(h.Name))
				}
			}
		}
		return tells
	}
	return f
}

var requestField = []byte(`"request_`)

// traefikHeaders reads the fields of the header that Traefik logs.
func (e *Entry) traefikHeaders(line []byte) {
	for name, raw := range jsonscan.Members(line[jsonscan.Space(line, 0):]) {
		name, ok := bytes.CutPrefix(name, requestField[1:])
		if !ok {
			continue
		}
		text := e.text(value{raw: raw})
		if len(text) == 0 || string(text) == "REDACTED" {
			continue
		}
		if string(name) == "X-Forwarded-For" {
			e.Forwarded = text
			continue
		}
		e.header(name, text)
	}
}
