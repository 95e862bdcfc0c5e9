package accesslog

import (
	"bytes"
	"errors"
	"slices"
	"strings"
)

// columns has the columns of W3C logs that are read. The directive #Fields sets their order, which may change in
// the middle of a file.
var columns = map[string]variable{
	"date": {what: valDate}, "time": {what: valClock}, "timestamp": {what: valEpoch, scale: 1e6}, "timestamp(ms)": {what: valEpoch, scale: 1e3, rank: 2},
	"c-ip": {what: valClient}, "x-forwarded-for": {what: valForwarded}, "cs-username": {what: valUser},
	"cs-method": {what: valMethod}, "cs-uri-stem": {what: valPath}, "cs-uri-query": {what: valQuery},
	"sc-status": {what: valStatus}, "sc-bytes": {what: valSent}, "x-edge-request-id": {what: valID},
}

const (
	cloudFrontFields = "date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent) " +
		"cs-uri-query cs(Cookie) x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken x-forwarded-for " +
		"ssl-protocol ssl-cipher x-edge-response-result-type cs-protocol-version fle-status fle-encrypted-fields"
	iisFields = "date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status " +
		"sc-substatus sc-win32-status time-taken"
)

var (
	errColumns   = errors.New("the fields do not match #Fields")
	errDirective = errors.New("#Fields lists no time, or no path")
)

// cloudFront reads CloudFront's standard log: fields separated by tabs, each escaped as in a URL.
func cloudFront(Options) *Format {
	return must((&w3c{name: "cloudfront", between: "\t", more: true, host: "x-host-header", unit: 1e6, decode: (*Entry).percent}).directive(cloudFrontFields))
}

// iis reads the W3C log of IIS: fields separated by blanks, with "+" in place of a blank within a field.
func iis(Options) *Format {
	return must((&w3c{name: "iis", between: " ", host: "cs-host", unit: 1e3, decode: (*Entry).plus}).directive(iisFields))
}

// w3c is a kind of W3C log.
type w3c struct {
	name    string
	between string
	more    bool   // lines may have more fields than #Fields lists
	host    string // the name of the column with the requested host
	unit    int64  // the unit of time-taken, in microseconds
	decode  func(e *Entry, value []byte, w what) []byte
}

// directive returns the format of the lines that follow #Fields.
func (w *w3c) directive(fields string) (*Format, error) {
	var tokens []part
	names := strings.Fields(strings.ToLower(fields))
	for _, name := range names {
		tokens = append(tokens, part{variable: w.column(name)}, part{lit: w.between})
	}
	t := &text{ends: true, decode: w.decode}
	f, err := compile(w.name, tokens[:max(len(tokens)-1, 0)], t)
	if err != nil || !slices.Contains(names, "cs-uri-stem") || slices.Contains(names, "date") && !slices.Contains(names, "time") {
		return nil, errDirective
	}
	t.request = false // the method is as the client has sent it
	f.line = func(line []byte, e *Entry) error {
		if line[0] == '#' {
			return ErrSkip
		}
		values, err := w.values(line, len(names))
		if err != nil {
			return err
		}
		return t.line(values, e)
	}
	f.header = func(line []byte) (*Format, error) {
		named, ok := bytes.CutPrefix(line, []byte("#Fields:"))
		if !ok {
			return f, nil
		}
		return w.directive(string(named))
	}
	return f, nil
}

// column returns the variable of a column.
func (w *w3c) column(name string) variable {
	v := columns[name]
	header, ok := strings.CutPrefix(name, "cs(")
	switch {
	case name == "time-taken":
		v = variable{what: valDuration, scale: w.unit}
	case name == w.host:
		v.what = valHost
	case ok && (name != "cs(host)" || w.host == "cs-host"):
		v = headerVariable(strings.TrimSuffix(header, ")"))
	}
	v.shape, v.wild, v.text = word, false, name
	return v
}

// values returns the first n values of a line, without the rest.
func (w *w3c) values(line []byte, n int) ([]byte, error) {
	rest, more := line, true
	for range n {
		var value []byte
		if value, rest, more = bytes.Cut(rest, []byte(w.between)); len(value) == 0 {
			return nil, errColumns
		}
	}
	switch {
	case more && !w.more:
		return nil, errColumns
	case more:
		line = line[:len(line)-len(rest)-1]
	}
	return line, nil
}

// percent decodes the escapes of a URL, but only one level, because the server has escaped the client's own escapes
// again.
func (e *Entry) percent(value []byte, _ what) []byte { return e.unhex(value, '%') }

// plus turns each "+" of a value back into a blank. A "+" that a client has sent looks the same. In a URL, plus keeps
// the "+", because a URL cannot contain a blank. From an address, plus removes the zone, because the zone belongs to
// the server.
func (e *Entry) plus(value []byte, w what) []byte {
	switch w {
	case valClient:
		value, _, _ = bytes.Cut(value, []byte("%"))
		return value
	case valPath, valQuery, valReferer:
		return value
	}
	if bytes.IndexByte(value, '+') < 0 {
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
