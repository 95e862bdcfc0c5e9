package recent

import (
	"slices"
	"sync/atomic"

	"github.com/sluicehq/sluice/policy"
)

// show is the visible form of a part: see [policy.RequestPart].
type show uint8

const (
	whole show = iota
	short
	hash
)

// schema is the list of a record's inputs for decisions. Policies with the same inputs share a schema.
type schema struct {
	policy atomic.Pointer[policy.Policy] // a policy with these inputs
	parts  []schemaPart
	fields []policy.RequestField
	client show
	// answers has the names of header fields of responses: see policy.ResponseFields.
	answers []string
	settles bool // outcomes are recorded, because rules depend on them
}

// schemaPart is a key part that is recorded.
type schemaPart struct {
	id   string
	show show
	at   int // the index in policy.RequestParts
}

// clientPart is the ID of the client's address, which every record has.
const clientPart = "client_ip:"

// showOf parses a show_key.
func showOf(text string) show {
	switch text {
	case "short":
		return short
	case "hash":
		return hash
	}
	return whole
}

func schemaOf(p *policy.Policy) *schema {
	s := &schema{fields: p.RequestFields(), answers: p.ResponseFields(), settles: len(p.ByOutcome()) > 0}
	s.policy.Store(p)
	for i, part := range p.RequestParts() {
		show := showOf(part.Show)
		if part.ID == clientPart {
			s.client = show
			continue
		}
		s.parts = append(s.parts, schemaPart{part.ID, show, i})
	}
	return s
}

// same reports whether two schemas are equal.
func (s *schema) same(o *schema) bool {
	return s.client == o.client && slices.Equal(s.parts, o.parts) && slices.Equal(s.fields, o.fields) && slices.Equal(s.answers, o.answers) && s.settles == o.settles
}

// find returns the index of a part, or -1.
func (s *schema) find(id string) int {
	return slices.IndexFunc(s.parts, func(p schemaPart) bool { return p.id == id })
}

// hides reports whether records have hashes instead of the values of a part.
func (s *schema) hides(id string) bool {
	if id == clientPart {
		return s.client != whole
	}
	i := s.find(id)
	return i >= 0 && s.parts[i].show != whole
}
