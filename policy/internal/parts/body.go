package parts

import "github.com/sluicehq/sluice/policy/internal/fields"

// BodyIsTrue reports whether a member of the body is true to every server.
func (x *Reader) BodyIsTrue(name string) bool {
	m, state := x.bodyMembers().Field(name)
	return state == fields.Present && m.Text == "true"
}

// HasBodyField reports whether a server may find a member in the body.
func (x *Reader) HasBodyField(name string) bool {
	_, state := x.bodyMembers().Field(name)
	return state != fields.Absent
}
