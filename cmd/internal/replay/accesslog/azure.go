package accesslog

import (
	"bytes"
	"errors"
)

var errRecords = errors.New(`many records in one line: write each in a line of its own, as "jq -c .records[]" does`)

// azure reads the access log of Azure's Application Gateway. Its two versions use different units.
func azure(o Options) *Format {
	const (
		category = whats + iota
		instance
		took
		host
		records
	)
	// Version 1 writes milliseconds, and its requestQuery is not the query.
	first := func(e *Entry) bool {
		name := e.textIn(instance)
		return bytes.HasPrefix(name, []byte("ApplicationGatewayRole")) ||
			e.values[whatEnded].rank > 0 && !bytes.HasPrefix(name, []byte("appgw"))
	}
	log := jsonLog{
		fields: []string{
			whatEnded: "timeStamp time", whatClient: "properties.clientIP", whatMethod: "properties.httpMethod",
			whatTarget: "properties.originalRequestUriWithArgs", whatPath: "properties.requestUri", whatQuery: "properties.requestQuery",
			whatAgent: "properties.userAgent", whatStatus: "properties.httpStatus", whatSent: "properties.sentBytes",
			whatHost: "properties.originalHost", whatID: "properties.transactionId",
			category: "category", instance: "properties.instanceId", took: "properties.timeTaken", host: "properties.host", records: "records",
		},
		when: timeIn(o.Zone),
		begin: func(e *Entry) error {
			switch {
			case e.has(records) && !e.has(whatClient):
				return errRecords
			case !e.has(whatClient) || e.has(category) && !e.is(category, "ApplicationGatewayAccessLog"):
				return ErrSkip // a line of the firewall log or the performance log
			}
			switch string(withoutPort(e.textIn(whatClient))) {
			case "":
				return errClient
			case "127.0.0.1", "::1":
				return ErrSkip // a health probe by the gateway itself
			}
			shift := 6
			if first(e) {
				shift = 3
			}
			e.took(took, shift)
			return nil
		},
		finish: func(e *Entry) error {
			if first(e) {
				e.Target = e.textIn(whatPath)
			}
			if len(e.Host) == 0 { // the host has not been rewritten
				e.Host = e.textIn(host)
			}
			return nil
		},
	}
	read := log.reader()
	return &Format{
		Name: "azure",
		Tells: Tells{
			Client: true, Host: true, Query: true, UserAgent: true, Began: true, Sent: true,
		},
		line: func(line []byte, e *Entry) error {
			line = bytes.TrimSpace(line)
			if unwrapped := bytes.Trim(line, ", \t"); len(unwrapped) > 0 && unwrapped[0] == '{' && unwrapped[len(unwrapped)-1] == '}' {
				return read(unwrapped, e) // a line of an array
			}
			switch string(line) {
			case `{"records":[`, `{"records": [`, `{ "records": [`, `"records": [`, `]}`, `] }`, `[`, `]`, `{`, `}`, ``:
				return ErrSkip // text around the lines of an exported blob
			}
			return errJSON
		},
	}
}
