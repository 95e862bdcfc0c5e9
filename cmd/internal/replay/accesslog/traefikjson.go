package accesslog

import (
	"bytes"
	"slices"
)

// Traefik's log of requests, in JSON.
func traefikJSON(o Options) *Format {
	const (
		addr = iota
		host
		user
		start
		ended
		duration
		method
		path
		asked
		status
		sent
	)
	wanted := []string{
		addr: "ClientAddr", host: "ClientHost", user: "ClientUsername", start: "StartUTC StartLocal", ended: "time",
		duration: "Duration", method: "RequestMethod", path: "RequestPath", asked: "RequestAddr RequestHost",
		status: "DownstreamStatus", sent: "DownstreamContentSize",
	}
	read := jsonFormat(wanted, func(e *Entry) error {
		if e.values[method].raw == nil && e.values[path].raw == nil {
			return ErrSkip // Traefik's own log
		}
		e.took(duration, -3)
		if at, err := e.when(start, o.Zone); err == nil {
			e.Time = at
		} else if at, err := e.when(ended, o.Zone); err == nil {
			e.ended(at)
		} else {
			return err
		}
		if err := e.status(status); err != nil {
			return err
		}
		e.sent(sent)
		e.Method, e.Target, e.Host, e.User = e.told(method), e.told(path), e.told(asked), e.told(user)
		// ClientHost is what X-Forwarded-For says where Traefik has let it pass, which may be a list.
		e.Client = withoutPort(e.told(addr))
		switch from := e.told(host); {
		case len(e.Client) == 0:
			e.Client = from
		case !bytes.Equal(from, e.Client):
			e.Forwarded = from
		}
		if len(e.Client) == 0 {
			return errClient
		}
		return nil
	})
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
	// Which fields of the header are logged is a matter of Traefik's configuration.
	f.narrow = func(sample [][]byte) Tells {
		tells := f.Tells
		tells.UserAgent, tells.Referer = false, false
		var e Entry
		for _, line := range sample {
			if f.Parse(line, &e) != nil {
				continue
			}
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

// traefikHeaders takes the fields of the header that Traefik was told to log.
func (e *Entry) traefikHeaders(line []byte) {
	name, raw, next := pair(line, blank(line, blank(line, 0)+1))
	for ; name != nil; name, raw, next = pair(line, next) {
		if !bytes.HasPrefix(name, requestField) {
			continue
		}
		text := e.text(value{raw: raw})
		if len(text) == 0 || string(text) == "REDACTED" {
			continue
		}
		switch name := name[len(requestField) : len(name)-1]; string(name) {
		case "User-Agent":
			e.UserAgent = text
		case "Referer":
			e.Referer = text
		case "X-Forwarded-For":
			e.Forwarded = text
		default:
			e.Headers = append(e.Headers, Field{name, text})
		}
	}
}
