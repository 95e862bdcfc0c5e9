package parts

import (
	"bytes"

	"github.com/sluicehq/sluice/policy/internal/fields"
)

// BodyIsTrue reports whether every server reads a member of the body as true.
func (x *Reader) BodyIsTrue(name string) bool {
	m, state := x.bodyMembers().Field(name)
	return state == fields.Present && m.Text == "true"
}

// BodyMayBeTrue reports whether a server may read a member of the body as true.
func (x *Reader) BodyMayBeTrue(name string) bool {
	m, state := x.bodyMembers().Field(name)
	return state == fields.Garbled || state == fields.Present && m.Text != "false"
}

// maxCallID is the maximum length of an ID that CallID returns.
const maxCallID = 256

// CallID returns the ID of the JSON-RPC request in the body, as written: a JSON string or number. For a batch, it
// returns "null". For any other body, such as a notification, it returns "". The result is valid until
// [Reader.Reset].
func (x *Reader) CallID() string {
	m := x.bodyMembers()
	if bytes.HasPrefix(bytes.TrimLeft(x.data, " \t\r\n"), []byte("[")) {
		return "null"
	}
	if method, ok := m.RawJSON("method"); !ok || method[0] != '"' {
		return ""
	}
	id, ok := m.RawJSON("id")
	if !ok || len(id) > maxCallID {
		return ""
	}
	return id
}

// HasBodyField reports whether a server may find a member in the body.
func (x *Reader) HasBodyField(name string) bool {
	_, state := x.bodyMembers().Field(name)
	return state != fields.Absent
}
