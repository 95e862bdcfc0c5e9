package accesslog

import (
	"bytes"
	"errors"
)

var errRecords = errors.New(`many records in one line: write each in a line of its own, as "jq -c .records[]" does`)

// The access log of Azure's Application Gateway, of both versions, whose units differ.
func azure(o Options) *Format {
	const (
		category = iota
		stamp    // v2
		at       // v1
		instance
		client
		method
		original
		uri
		query
		agent
		status
		sent
		took
		asked
		host
		id
		records
	)
	wanted := []string{
		category: "category", stamp: "timeStamp", at: "time", instance: "properties.instanceId",
		client: "properties.clientIP", method: "properties.httpMethod", original: "properties.originalRequestUriWithArgs",
		uri: "properties.requestUri", query: "properties.requestQuery", agent: "properties.userAgent",
		status: "properties.httpStatus", sent: "properties.sentBytes", took: "properties.timeTaken",
		asked: "properties.originalHost", host: "properties.host", id: "properties.transactionId", records: "records",
	}
	read := jsonFormat(wanted, func(e *Entry) error {
		switch {
		case e.values[records].raw != nil && e.values[client].raw == nil:
			return errRecords
		case e.values[client].raw == nil || e.values[category].raw != nil && !e.is(category, "ApplicationGatewayAccessLog"):
			return ErrSkip // of the firewall, of the performance
		}
		e.Client = withoutPort(e.told(client))
		switch string(e.Client) {
		case "":
			return errClient
		case "127.0.0.1", "::1":
			return ErrSkip // the gateway asks itself how it is
		}
		// Version 1 writes milliseconds, and something else than the query into requestQuery.
		name := e.told(instance)
		first := bytes.HasPrefix(name, []byte("ApplicationGatewayRole")) ||
			e.values[stamp].raw == nil && !bytes.HasPrefix(name, []byte("appgw"))
		if first {
			e.took(took, 3)
			e.Target = e.told(uri)
		} else {
			e.took(took, 6)
			if e.Target = e.told(original); len(e.Target) == 0 {
				e.Target = e.join(e.told(uri), e.told(query))
			}
		}
		end, err := e.when(stamp, o.Zone)
		if err != nil {
			if end, err = e.when(at, o.Zone); err != nil {
				return err
			}
		}
		e.ended(end)
		if err := e.status(status); err != nil {
			return err
		}
		e.sent(sent)
		// The host may have been rewritten.
		if e.Host = e.told(asked); len(e.Host) == 0 {
			e.Host = e.told(host)
		}
		e.Method, e.UserAgent, e.ID = e.told(method), e.told(agent), e.told(id)
		return nil
	})
	return &Format{
		Name: "azure",
		Tells: Tells{
			Client: true, Host: true, Query: true, UserAgent: true, Began: true, Sent: true,
		},
		line: func(line []byte, e *Entry) error {
			line = bytes.TrimSpace(line)
			if unwrapped := bytes.Trim(line, ", \t"); len(unwrapped) > 0 && unwrapped[0] == '{' && unwrapped[len(unwrapped)-1] == '}' {
				return read(unwrapped, e) // one of the lines of an array
			}
			switch string(line) {
			case `{"records":[`, `{"records": [`, `{ "records": [`, `"records": [`, `]}`, `] }`, `[`, `]`, `{`, `}`, ``:
				return ErrSkip // what an exported blob has around its lines
			}
			return errJSON
		},
	}
}
