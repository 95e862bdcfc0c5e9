package checkapi

import (
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/textproto"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

const (
	maxChecks = 1000    // of a batch
	maxFields = 256     // of a request's head, its attributes, or a key
	maxID     = 256     // bytes
	maxUnits  = 1 << 50 // more than any limit has
)

// memberSet is a set of members of an object, by their place in the list of their names.
type memberSet uint16

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

var checkNames = []string{
	inRequest: "request", inRule: "rule", inKey: "key", inCost: "cost", inID: "id",
	inChecks: "checks", inPeek: "peek", inOutcome: "outcome", inAt: "at", inPlace: "place",
}

const (
	aboutOne memberSet = 1<<inRequest | 1<<inRule | 1<<inKey | 1<<inCost | 1<<inID
	aboutAll           = aboutOne | 1<<inChecks
)

const (
	inMethod = iota
	inHost
	inPath
	inHeaders
	inClient
	inAttributes
	inBody
	inBody64
)

var requestNames = []string{
	inMethod: "method", inHost: "host", inPath: "path", inHeaders: "headers", inClient: "client",
	inAttributes: "attributes", inBody: "body", inBody64: "body_base64",
}

const (
	inStatus = iota
	inResponseHeaders
	inBytes
	inCharged
	inCounts
)

var outcomeNames = []string{
	inStatus: "status", inResponseHeaders: "headers", inBytes: "bytes", inCharged: "cost", inCounts: "counts",
}

// member returns the place of a member in the names that an object takes, and adds it to those that
// have been seen.
func (d *reader) member(name string, names []string, takes memberSet, seen *memberSet) (int, bool) {
	for n, known := range names {
		if one := memberSet(1) << n; name == known && takes&one != 0 {
			if *seen&one != 0 {
				return n, d.fail("the member is there twice")
			}
			*seen |= one
			return n, true
		}
	}
	return 0, d.fail("there is no such member: it may be %s", namesOf(names, takes))
}

func namesOf(names []string, takes memberSet) string {
	var all []string
	for n, name := range names {
		if takes>>n&1 != 0 {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// decoder reads the body of a call: a check, or with "checks" several.
type decoder struct {
	reader
	operation *operation
	room      func() *check // returns the next check to be filled in
	batch     bool
}

// decode reads the whole body.
func (d *decoder) decode() bool { return d.check(d.room(), d.operation.takes) && d.end() }

func (d *decoder) check(c *check, takes memberSet) bool {
	c.mode = d.operation.mode
	var seen memberSet
	ok := d.members(func(name string) bool {
		n, ok := d.member(name, checkNames, takes, &seen)
		return ok && d.checkMember(c, n)
	})
	return ok && d.complete(seen)
}

// complete says what is wrong with the members of a check taken together.
func (d *decoder) complete(seen memberSet) bool {
	has := func(n int) bool { return seen>>n&1 != 0 }
	switch {
	case has(inChecks):
		return seen == 1<<inChecks || d.fail("beside \"checks\" nothing else may be there: write it into each check")
	case d.operation.places != nil:
		return has(inPlace) || d.fail("write \"place\", as the answer to the check has it")
	case has(inRequest) == has(inRule):
		return d.fail("write \"request\", or \"rule\" and \"key\": which limits are asked about?")
	case has(inKey) && !has(inRule):
		return d.fail("\"key\" says whom of a rule: write \"rule\", too")
	case d.operation.settle && !has(inOutcome):
		return d.fail("write \"outcome\": what has become of the request")
	}
	return true
}

func (d *decoder) checkMember(c *check, n int) (ok bool) {
	switch n {
	case inRequest:
		return d.request(c)
	case inRule:
		c.rule, ok = d.text("the name of a rule")
	case inKey:
		c.key = map[string]string{}
		return d.texts(c.key, "the value of a part of a key")
	case inCost:
		c.request.Cost, ok = d.integer(1, maxUnits)
	case inID:
		return d.id(c)
	case inChecks:
		return d.checks()
	case inPeek:
		return d.peek(c)
	case inOutcome:
		return d.outcome(&c.outcome)
	case inAt:
		return d.at(c)
	case inPlace:
		return d.place(c)
	}
	return ok
}

func (d *decoder) checks() bool {
	d.batch = true
	n := 0
	ok := d.elements(func() bool {
		if n++; n > maxChecks {
			return d.fail("a batch has at most %d checks", maxChecks)
		}
		return d.check(d.room(), d.operation.takes&^(1<<inChecks))
	})
	return ok && (n > 0 || d.fail("there is no check in it"))
}

func (d *decoder) id(c *check) (ok bool) {
	if c.request.ID, ok = d.text("an id"); ok && (c.request.ID == "" || len(c.request.ID) > maxID) {
		return d.fail("an id has from 1 to %d bytes", maxID)
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

// place reads whether whoever asks will say when the request ends, or the place that it has.
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
		return d.fail("write the time of the check as its answer has it, as in 2027-01-31T12:00:00Z")
	}
	return true
}

// request reads the request that a check is about.
func (d *decoder) request(c *check) bool {
	var seen memberSet
	ok := d.members(func(name string) bool {
		n, ok := d.member(name, requestNames, 1<<len(requestNames)-1, &seen)
		return ok && d.requestMember(c, n)
	})
	switch {
	case !ok:
		return false
	case seen>>inPath&1 == 0:
		return d.fail("write \"path\", if only as \"/\": rules go by it")
	case seen>>inBody&1 != 0 && seen>>inBody64&1 != 0:
		return d.fail("write \"body\" or \"body_base64\", and not both")
	}
	c.described = true
	return true
}

func (d *decoder) requestMember(c *check, n int) (ok bool) {
	switch n {
	case inMethod:
		c.request.Method, ok = d.text("the method")
	case inHost:
		c.request.Host, ok = d.text("the host")
	case inPath:
		c.target, ok = d.text("the path")
	case inHeaders:
		c.request.Header = c.header
		return d.header(c.header)
	case inClient:
		return d.client(c)
	case inAttributes:
		c.request.Attributes = c.attributes
		return d.texts(c.attributes, "an attribute")
	case inBody:
		c.body, ok = d.text("the body")
		c.request.Body = c.read
	case inBody64:
		return d.body64(c)
	}
	return ok
}

func (d *decoder) body64(c *check) bool {
	text, ok := d.text("the body")
	if !ok {
		return false
	}
	body, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		return d.fail("the body is not base64 as RFC 4648, section 4, has it")
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

// texts reads an object of texts.
func (d *decoder) texts(all map[string]string, what string) bool {
	return d.members(func(name string) bool {
		if _, twice := all[name]; twice {
			return d.fail("the member is there twice")
		}
		value, ok := d.text(what)
		all[name] = value
		return ok && d.few(len(all))
	})
}

func (d *decoder) few(n int) bool {
	return n <= maxFields || d.fail("there are more than %d of them", maxFields)
}

// header reads fields of a head: a text for each, or a list of those that came on lines of their
// own.
func (d *decoder) header(h http.Header) bool {
	n := 0
	return d.members(func(name string) bool {
		name = http.CanonicalHeaderKey(name)
		if h[name] != nil {
			return d.fail("the field is there twice, as upper and lower case are one in its name: write a list")
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
		return d.elements(value) && (h[name] != nil || d.fail("the list of a field has at least one"))
	})
}

// outcome reads what has become of a request.
func (d *decoder) outcome(o *policy.Outcome) bool {
	o.Bytes = -1
	var seen memberSet
	return d.members(func(name string) bool {
		n, ok := d.member(name, outcomeNames, 1<<len(outcomeNames)-1, &seen)
		return ok && d.outcomeMember(o, n)
	})
}

func (d *decoder) outcomeMember(o *policy.Outcome, n int) (ok bool) {
	switch n {
	case inStatus:
		var status int64
		status, ok = d.integer(100, 599)
		o.Status = int(status)
	case inResponseHeaders:
		o.Header = http.Header{}
		return d.header(o.Header)
	case inBytes:
		o.Bytes, ok = d.integer(0, maxUnits)
	case inCharged:
		if o.Cost, ok = d.integer(0, maxUnits); o.Cost == 0 {
			o.Cost = -1 // nothing at all; zero would be nothing said
		}
	case inCounts:
		var counts bool
		counts, ok = d.boolean()
		o.Verdict = policy.CountsNot
		if counts {
			o.Verdict = policy.Counts
		}
	}
	return ok
}
