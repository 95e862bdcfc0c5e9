package parts

import (
	"strconv"

	"github.com/sluicehq/sluice/policy/internal/fields"
)

// BodySize returns the length of the body in bytes, if it has been read whole.
func (x *Reader) BodySize() (n int64, known bool) {
	x.bodyMembers()
	return x.bodySize, x.bodySize >= 0
}

// BodyField returns the text or the number of a member of a JSON body, "model" or "options[num_predict]". It is
// not ok where the member is missing, or read differently by servers.
func (x *Reader) BodyField(name string) (text string, number int64, ok bool) {
	m, state := x.bodyMembers().Field(name)
	if state != fields.Present {
		return "", 0, false
	}
	number, err := strconv.ParseInt(m.Text, 10, 64)
	if err != nil {
		number = 0
	}
	return m.Text, number, true
}

// maxCallID is the length of the longest ID of a call that is returned.
const maxCallID = 256

// CallID returns the ID of the JSON-RPC request that is the body, as it is written there: a JSON string or number. It
// is empty if the body is anything else, such as a notification, and after [Reader.Reset].
func (x *Reader) CallID() string {
	m := x.bodyMembers()
	if method, ok := m.JSON("method"); !ok || method[0] != '"' {
		return ""
	}
	id, ok := m.JSON("id")
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
