package parts

import "github.com/sluicehq/sluice/policy/internal/fields"

// Known is the recorded state of a part in a request.
type Known uint8

const (
	Absent    Known = iota // the request lacks the part
	Present                // the request has the value
	Garbled                // servers may read it in several ways
	BrokenOff              // garbled, because the body ended early
	Faulty                 // rules cannot use the body: see [Reader.BodyFault]
	Unread                 // no rule has read the part
)

// Reading is the recorded state and value of a part in a request.
type Reading struct {
	State Known
	Value string // if Present, the value; if Faulty, the BodyFault
	Sent  string // the value as the request spells it, if that differs
}

// IsRecorded reports whether a record of a request has to contain the value, because the value comes neither from
// the request line nor from the rule.
func (p *Part) IsRecorded() bool {
	return p.kind.source != fromRule && p.kind.source != fromPattern && p.kind.source != fromLine
}

// Reading returns the reading of the part in the request of x, for a record. If the part would have to be parsed
// first, its state is Unread. The texts are valid until x is reset.
func (p *Part) Reading(x *Reader) (r Reading) {
	if p.isUnread(x) {
		r.State = Unread
		return r
	}
	value, found := p.Value(x)
	switch {
	case found:
		r.State, r.Value = Present, value
		if p.Folds() {
			if sent := x.Spelling(p); sent != value {
				r.Sent = sent
			}
		}
	case p.ReadsBody() && x.fault != "":
		r.State, r.Value = Faulty, x.fault
	case p.ReadsBody() && x.BrokeOff:
		r.State = BrokenOff
	case x.Garbled():
		r.State = Garbled
	}
	return r
}

// isUnread reports whether the part is in the members of a query, body or other field that has not been parsed.
func (p *Part) isUnread(x *Reader) bool {
	switch {
	case p.kind.source == fromBody:
		return !x.body.read
	case p.kind.source == fromQuery:
		return !x.query.read && x.request.RawQuery != ""
	case p.kind.chosen == claimed:
		return !x.claims.read && len(x.request.Header["Authorization"]) > 0
	case p.kind.name == cookieKind:
		return !x.cookies.read && len(x.request.Header["Cookie"]) > 0
	}
	return false
}

// recordedValue implements Part.Value for a request with recorded readings.
func (p *Part) recordedValue(x *Reader) (string, bool) {
	var r Reading
	known := false
	if p.IsRecorded() {
		r, known = x.request.Recorded(p.id)
	}
	if !known {
		return p.find(x)
	}
	x.state = fields.Absent
	if r.State > Present {
		x.state = fields.Garbled
	}
	switch r.State {
	case Present:
		return r.Value, true
	case BrokenOff:
		x.BrokeOff = true
	case Faulty:
		x.fault = r.Value
	case Unread:
		x.Unread = true
	}
	return "", false
}
