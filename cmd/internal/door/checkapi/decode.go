package checkapi

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// memberSet is a set of members of an object. Bit n stands for the member with the index n in the object's table.
type memberSet uint16

func (s memberSet) has(n int) bool { return s>>n&1 != 0 }

// member is a possible member of an object: its name, and a function that decodes its value into a T.
type member[T any] struct {
	name   string
	decode func(d *decoder, v T) bool
}

const (
	inRequest = iota
	inRule
	inKey
	inCost
	inID
	inChecks
	inPeek
	inOutcome
	inAt
	inPlace
)

const (
	aboutOne memberSet = 1<<inRequest | 1<<inRule | 1<<inKey | 1<<inCost | 1<<inID
	aboutAll           = aboutOne | 1<<inChecks
)

var checkMembers = []member[*check]{
	inRequest: {"request", (*decoder).request},
	inRule:    {"rule", text("the name of a rule", func(c *check) *string { return &c.rule })},
	inKey: {"key", func(d *decoder, c *check) bool {
		c.key = map[string]string{}
		return d.texts(c.key, "the value of a key part")
	}},
	inCost:    {"cost", integer(1, door.MaxUnits, func(c *check) *int64 { return &c.request.Cost })},
	inID:      {"id", (*decoder).id},
	inChecks:  {"checks", (*decoder).checks},
	inPeek:    {"peek", (*decoder).peek},
	inOutcome: {"outcome", (*decoder).outcome},
	inAt:      {"at", (*decoder).at},
	inPlace:   {"place", (*decoder).place},
}

var requestMembers = []member[*check]{
	{"method", text("the method", func(c *check) *string { return &c.request.Method })},
	{"host", text("the host", func(c *check) *string { return &c.request.Host })},
	{"path", text("the path", func(c *check) *string { return &c.target })},
	{"headers", func(d *decoder, c *check) bool {
		c.request.Header = c.header
		return d.header(c.header)
	}},
	{"client", (*decoder).client},
	{"attributes", func(d *decoder, c *check) bool {
		c.request.Attributes = c.attributes
		return d.texts(c.attributes, "an attribute")
	}},
	{"body", func(d *decoder, c *check) (ok bool) {
		c.body, ok = d.text("the body")
		c.request.Body = c.read
		return ok
	}},
	{"body_base64", (*decoder).body64},
}

var outcomeMembers = []member[*policy.Outcome]{
	{"status", func(d *decoder, o *policy.Outcome) bool {
		status, ok := d.integer(100, 599)
		o.Status = int(status)
		return ok
	}},
	{"headers", func(d *decoder, o *policy.Outcome) bool {
		o.Header = http.Header{}
		return d.header(o.Header)
	}},
	{"bytes", integer(0, door.MaxUnits, func(o *policy.Outcome) *int64 { return &o.Bytes })},
	{"cost", func(d *decoder, o *policy.Outcome) (ok bool) {
		if o.Cost, ok = d.integer(0, door.MaxUnits); o.Cost == 0 {
			o.Cost = -1 // -1 means a cost of 0, because 0 means that the cost is missing
		}
		return ok
	}},
	{"numbers", func(d *decoder, o *policy.Outcome) bool {
		o.Numbers = map[string]int64{}
		return d.members(func(path string) bool {
			if _, twice := o.Numbers[path]; twice {
				return d.fail("the member occurs twice")
			}
			n, ok := d.integer(0, door.MaxUnits)
			o.Numbers[path] = n
			return ok && d.few(len(o.Numbers))
		})
	}},
	{"counts", func(d *decoder, o *policy.Outcome) bool {
		counts, ok := d.boolean()
		o.Verdict = policy.CountsNot
		if counts {
			o.Verdict = policy.Counts
		}
		return ok
	}},
}

// text returns a function that decodes a text into the variable to which target returns a pointer. Errors call the text
// by the label, such as "the method".
func text[T any](label string, target func(T) *string) func(*decoder, T) bool {
	return func(d *decoder, v T) (ok bool) {
		*target(v), ok = d.text(label)
		return ok
	}
}

// integer returns a function that decodes a whole number into the variable to which target returns a pointer. The
// number must be from low to high.
func integer[T any](low, high int64, target func(T) *int64) func(*decoder, T) bool {
	return func(d *decoder, v T) (ok bool) {
		*target(v), ok = d.integer(low, high)
		return ok
	}
}

// object reads an object, and decodes its members into v. The object may have only the allowed members, each of them at
// most once. object returns the set of the members that it has read.
func object[T any](d *decoder, v T, all []member[T], allowed memberSet) (seen memberSet, ok bool) {
	ok = d.members(func(name string) bool {
		n := find(all, name)
		switch {
		case n < 0 || !allowed.has(n):
			return d.fail("unknown member: the members are %s", strings.Join(namesOf(all, allowed), ", "))
		case seen.has(n):
			return d.fail("the member occurs twice")
		}
		seen |= 1 << n
		return all[n].decode(d, v)
	})
	return seen, ok
}

// find returns the index of the member with the given name, or -1.
func find[T any](all []member[T], name string) int {
	for n := range all {
		if all[n].name == name {
			return n
		}
	}
	return -1
}

func namesOf[T any](all []member[T], set memberSet) (names []string) {
	for n := range all {
		if set.has(n) {
			names = append(names, all[n].name)
		}
	}
	return names
}

// anyMember is the set of all members.
const anyMember = ^memberSet(0)

// decoder reads the body of a call: one check, or several under "checks".
type decoder struct {
	reader
	operation *operation
	all       []member[*check] // checkMembers
	room      func() *check    // returns an empty check
	batch     bool
}

// begin prepares the decoder for the body of an operation.
func (d *decoder) begin(body string, o *operation) {
	d.reader, d.operation, d.batch = reader{s: body}, o, false
}

// decode reads the whole body.
func (d *decoder) decode() bool { return d.check(d.room(), d.operation.takes) && d.end() }

func (d *decoder) check(c *check, allowed memberSet) bool {
	c.mode = d.operation.mode
	seen, ok := object(d, c, d.all, allowed)
	return ok && d.complete(c, seen)
}

// complete checks the combination of a check's members.
func (d *decoder) complete(c *check, seen memberSet) bool {
	switch {
	case seen.has(inChecks):
		return seen == 1<<inChecks || d.fail("\"checks\" must be the only member: write other members into each check")
	case d.operation.places != nil:
		return seen.has(inPlace) || d.fail("write the \"place\" from the answer to the check")
	case seen.has(inRequest) == seen.has(inRule):
		return d.fail("write \"request\", or \"rule\" and \"key\"")
	case seen.has(inKey) && !seen.has(inRule):
		return d.fail("\"key\" needs a rule: write \"rule\", too")
	case c.request.Ends && c.mode != policy.Charge:
		return d.fail("only a charged check can have a place: omit \"peek\" or \"place\"")
	case d.operation.settle && !seen.has(inOutcome):
		return d.fail("write \"outcome\", the outcome of the request")
	}
	return true
}

func (d *decoder) checks(*check) bool {
	d.batch = true
	n := 0
	ok := d.elements(func() bool {
		if n++; n > door.MaxChecks {
			return d.fail("a batch has at most %d checks", door.MaxChecks)
		}
		return d.check(d.room(), d.operation.takes&^(1<<inChecks))
	})
	return ok && (n > 0 || d.fail("the batch is empty"))
}

func (d *decoder) id(c *check) (ok bool) {
	if c.request.ID, ok = d.text("an id"); ok && (c.request.ID == "" || len(c.request.ID) > door.MaxID) {
		return d.fail("an id has from 1 to %d bytes", door.MaxID)
	}
	return ok
}

func (d *decoder) peek(c *check) bool {
	peek, ok := d.boolean()
	if peek {
		c.mode = policy.Peek
	}
	return ok
}

// place reads the member "place". For an operation on places, the member is the token of a place. In a check, the
// member is a boolean: with true, the caller requests a place, and will report the end of the request.
func (d *decoder) place(c *check) (ok bool) {
	if d.operation.places != nil {
		c.place, ok = d.text("a place")
		return ok
	}
	c.request.Ends, ok = d.boolean()
	return ok
}

func (d *decoder) at(c *check) bool {
	text, ok := d.text("the time of the check")
	if !ok {
		return false
	}
	var err error
	if c.request.Time, err = time.Parse(time.RFC3339Nano, text); err != nil {
		return d.fail("write the time from the answer to the check, as in 2027-01-31T12:00:00Z")
	}
	return true
}

// request reads the request of a check.
func (d *decoder) request(c *check) bool {
	seen, ok := object(d, c, requestMembers, anyMember)
	has := func(name string) bool { return seen.has(find(requestMembers, name)) }
	switch {
	case !ok:
		return false
	case !has("path"):
		return d.fail("write \"path\", at least \"/\": rules match requests by their paths")
	case has("body") && has("body_base64"):
		return d.fail("write either \"body\" or \"body_base64\"")
	}
	c.described = true
	return true
}

func (d *decoder) body64(c *check) bool {
	text, ok := d.text("the body")
	if !ok {
		return false
	}
	body, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return d.fail("the body is not base64 as in RFC 4648, section 4")
	}
	c.body, c.request.Body = string(body), c.read
	return true
}

func (d *decoder) client(c *check) bool {
	text, ok := d.text("the address of the client")
	if !ok {
		return false
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		withPort, _ := netip.ParseAddrPort(text)
		addr = withPort.Addr()
	}
	c.request.Peer = addr.Unmap().WithZone("")
	return addr.IsValid() || d.fail("write the address of the client, as in 192.0.2.1 or 2001:db8::1")
}

// texts reads an object with texts as values. Errors call each value by the label.
func (d *decoder) texts(all map[string]string, label string) bool {
	return d.members(func(name string) bool {
		if _, twice := all[name]; twice {
			return d.fail("the member occurs twice")
		}
		value, ok := d.text(label)
		all[name] = value
		return ok && d.few(len(all))
	})
}

func (d *decoder) few(n int) bool {
	return n <= door.MaxFields || d.fail("the object has more than %d members", door.MaxFields)
}

// header reads header fields. The value of a field is a text, or a list of texts if the field occurred on several
// lines.
func (d *decoder) header(h http.Header) bool {
	n := 0
	return d.members(func(name string) bool {
		name = http.CanonicalHeaderKey(name)
		if h[name] != nil {
			return d.fail("the field occurs twice (case does not matter in its name): write its values as a list")
		}
		value := func() bool {
			v, ok := d.text("a field")
			h[name] = append(h[name], textproto.TrimString(v))
			n++
			return ok && d.few(n)
		}
		if d.space(); d.i == len(d.s) || d.s[d.i] != '[' {
			return value()
		}
		return d.elements(value) && (h[name] != nil || d.fail("the list of a field cannot be empty"))
	})
}

// outcome reads the outcome of a request.
func (d *decoder) outcome(c *check) bool {
	c.outcome.Bytes = -1
	_, ok := object(d, &c.outcome, outcomeMembers, anyMember)
	return ok
}
