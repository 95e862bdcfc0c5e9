package accesslog

import (
	"bytes"
	"errors"
	"net/textproto"
	"strings"
)

// The columns of W3C logs that matter. Their order is that of the directive #Fields, which may change in
// the middle of a file.
const (
	columnOther = iota
	columnDate
	columnTime
	columnSeconds
	columnMillis
	columnClient
	columnForwarded
	columnUser
	columnMethod
	columnStem
	columnQuery
	columnHost
	columnStatus
	columnSent
	columnTaken
	columnReferer
	columnAgent
	columnID
	columnHeader
)

var columnNames = map[string]uint8{
	"date": columnDate, "time": columnTime, "timestamp": columnSeconds, "timestamp(ms)": columnMillis,
	"c-ip": columnClient, "x-forwarded-for": columnForwarded, "cs(x-forwarded-for)": columnForwarded,
	"cs-username": columnUser, "cs-method": columnMethod, "cs-uri-stem": columnStem, "cs-uri-query": columnQuery,
	"sc-status": columnStatus, "sc-bytes": columnSent, "time-taken": columnTaken,
	"cs(referer)": columnReferer, "cs(user-agent)": columnAgent, "x-edge-request-id": columnID,
}

const (
	cloudFrontFields = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) " +
		"cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for " +
		"ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields"
	iisFields = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status " +
		"sc-substatus sc-win32-status time-taken"
)

var (
	errColumns   = errors.New("not as many fields as #Fields names")
	errDirective = errors.New("#Fields names no time, or no path")
)

// cloudFront reads CloudFront's standard log: fields between tabs, each escaped as in a URL.
func cloudFront(Options) *Format {
	f, _ := (&w3c{name: "cloudfront", between: '\t', more: true, host: "x-host-header", unit: 6, decode: (*Entry).percent}).directive(cloudFrontFields)
	return f
}

// iis reads the W3C log of IIS: fields between blanks, with "+" for the blanks in them.
func iis(Options) *Format {
	f, _ := (&w3c{name: "iis", between: ' ', host: "cs-host", unit: 3, decode: (*Entry).plus}).directive(iisFields)
	return f
}

// w3c is a kind of W3C log.
type w3c struct {
	name    string
	between byte
	more    bool   // lines may have more fields than are named
	host    string // the field of the host that was asked for
	unit    int    // of time-taken: ten to the power of it is microseconds
	// decode returns what a client has sent, of a value as it is written. A path and a query that are
	// written as they were sent are no business of it.
	decode  func(e *Entry, value []byte, url bool) []byte
	columns []uint8
	headers [][]byte // by column
}

// directive returns the format of the lines that follow #Fields.
func (w *w3c) directive(fields string) (*Format, error) {
	next := *w
	next.columns, next.headers = nil, nil
	f := &Format{Name: w.name}
	var seen [columnHeader + 1]bool
	for name := range strings.FieldsSeq(fields) {
		lower := strings.ToLower(name)
		column := columnNames[lower]
		var header []byte
		switch {
		case lower == w.host, lower == "cs(host)" && w.host == "cs-host":
			column = columnHost
		case column == columnOther && lower != "cs(host)" && strings.HasPrefix(lower, "cs(") && strings.HasSuffix(lower, ")"):
			column = columnHeader
			header = []byte(textproto.CanonicalMIMEHeaderKey(name[3 : len(name)-1]))
			f.Tells.Headers = append(f.Tells.Headers, string(header))
		}
		if seen[column] && column != columnHeader {
			column = columnOther // the first counts
		}
		seen[column] = true
		next.columns, next.headers = append(next.columns, column), append(next.headers, header)
	}
	if !(seen[columnDate] && seen[columnTime] || seen[columnSeconds] || seen[columnMillis]) || !seen[columnStem] {
		return nil, errDirective
	}
	f.Tells.Client, f.Tells.Forwarded, f.Tells.User = seen[columnClient], seen[columnForwarded], seen[columnUser]
	f.Tells.Host, f.Tells.Query, f.Tells.Sent = seen[columnHost], seen[columnQuery], seen[columnSent]
	f.Tells.Referer, f.Tells.UserAgent = seen[columnReferer], seen[columnAgent]
	f.Tells.Began, f.Tells.Fine = seen[columnTaken], seen[columnMillis]
	f.line = next.line
	f.header = func(line []byte) (*Format, error) {
		named, ok := bytes.CutPrefix(line, []byte("#Fields:"))
		if !ok {
			return f, nil
		}
		return w.directive(string(named))
	}
	return f, nil
}

func (w *w3c) line(line []byte, e *Entry) error {
	if line[0] == '#' {
		return ErrSkip
	}
	var date, clock, seconds, millis, stem, query []byte
	for i, column := range w.columns {
		if line == nil {
			return errColumns
		}
		value := line
		if end := bytes.IndexByte(line, w.between); end >= 0 {
			value, line = line[:end], line[end+1:]
		} else {
			line = nil
		}
		if len(value) == 0 {
			return errColumns
		}
		if column == columnOther || len(value) == 1 && value[0] == '-' {
			continue
		}
		switch column {
		case columnDate:
			date = value
		case columnTime:
			clock = value
		case columnSeconds:
			seconds = value
		case columnMillis:
			millis = value
		case columnClient:
			e.Client, _, _ = bytes.Cut(value, []byte("%")) // the zone is one of the server
		case columnForwarded:
			e.Forwarded = w.decode(e, value, false)
		case columnUser:
			e.User = w.decode(e, value, false)
		case columnMethod:
			e.Method = value
		case columnStem:
			stem = w.decode(e, value, true)
		case columnQuery:
			query = w.decode(e, value, true)
		case columnHost:
			e.Host = value
		case columnStatus:
			n, ok := integer(value)
			if !ok || n > 999 {
				return errStatus
			}
			e.Status = int(n)
		case columnSent:
			if n, ok := integer(value); ok {
				e.Sent = n
			}
		case columnTaken:
			if n, ok := lasting(value, w.unit); ok {
				e.Duration = n
			}
		case columnReferer:
			e.Referer = w.decode(e, value, true)
		case columnAgent:
			e.UserAgent = w.decode(e, value, false)
		case columnID:
			e.ID = value
		case columnHeader:
			e.Headers = append(e.Headers, Field{w.headers[i], w.decode(e, value, false)})
		}
	}
	if line != nil && !w.more {
		return errColumns
	}
	e.Target = e.join(stem, query)
	at, ok := int64(0), false
	switch {
	case millis != nil:
		at, ok = scaled(millis, 3)
	case len(date) == 10 && len(clock) >= 8:
		var room [40]byte
		if len(date)+len(clock)+1 <= len(room) {
			at, ok = isoTime(append(append(append(room[:0], date...), ' '), clock...), nil) // always UTC
		}
	case seconds != nil:
		at, ok = scaled(seconds, 6)
	}
	if !ok {
		return errNoTime
	}
	e.ended(at)
	return nil
}

// percent undoes the escapes of a URL once. A client's own escapes have been escaped in turn.
func (e *Entry) percent(value []byte, _ bool) []byte {
	i := bytes.IndexByte(value, '%')
	if i < 0 {
		return value
	}
	from := len(e.own)
	for ; i >= 0; i = bytes.IndexByte(value, '%') {
		e.own = append(e.own, value[:i]...)
		value = value[i:]
		if b, ok := hex2(value[1:]); ok {
			e.own = append(e.own, b)
			value = value[3:]
		} else {
			e.own = append(e.own, '%')
			value = value[1:]
		}
	}
	e.own = append(e.own, value...)
	return e.own[from:len(e.own):len(e.own)]
}

// plus makes the blanks again of a value. A "+" that a client has sent cannot be told from them; in a
// URL it is more likely than a blank, which cannot be there.
func (e *Entry) plus(value []byte, url bool) []byte {
	if url || bytes.IndexByte(value, '+') < 0 {
		return value
	}
	from := len(e.own)
	e.own = append(e.own, value...)
	value = e.own[from:len(e.own):len(e.own)]
	for i, c := range value {
		if c == '+' {
			value[i] = ' '
		}
	}
	return value
}
