package parts

import (
	"encoding/base64"
	"strings"

	"github.com/sluicehq/sluice/policy/internal/fields"
)

// repeatedBy has the header fields in which clients of the Model Context Protocol repeat fields of the body, so
// that routers need not read the body. A server has to refuse a request in which header and body differ. See
// "Streamable HTTP" in the specification of 2026-07-28.
var repeatedBy = map[string]string{"method": "Mcp-Method", "params[name]": "Mcp-Name", "params[uri]": "Mcp-Name"}

// RepeatedBy returns the name of the header field that repeats the field of the body, or "".
func (p *Part) RepeatedBy() string {
	if !p.ReadsBody() {
		return ""
	}
	return repeatedBy[p.name]
}

// contradicts reports whether the header contradicts a JSON-RPC body: the request has the header, but none of the
// fields of the body that the header repeats has its value.
func (x *Reader) contradicts(header string) bool {
	lines := x.request.Header[header]
	if len(lines) == 0 || !x.isRPC() {
		return false
	}
	value, ok := decodeMCP(lines[0])
	if !ok || len(lines) > 1 {
		return true
	}
	for name, by := range repeatedBy {
		if text, _, found := x.BodyField(name); by == header && found && text == value {
			return false
		}
	}
	return true
}

// isRPC reports whether the body is a JSON-RPC message.
func (x *Reader) isRPC() bool {
	_, state := x.bodyMembers().Field("jsonrpc")
	return state != fields.Absent
}

// decodeMCP returns the value of a header. Clients encode a value in base64 if it is not all printable ASCII.
func decodeMCP(s string) (string, bool) {
	s = strings.Trim(s, " \t")
	encoded, ok := strings.CutPrefix(s, "=?base64?")
	if encoded, closed := strings.CutSuffix(encoded, "?="); ok && closed {
		data, err := base64.StdEncoding.DecodeString(encoded)
		return string(data), err == nil
	}
	return s, true
}
