package answer

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Encoder turns decisions into answers. The zero value sends the fields that the package's documentation
// describes. It is safe for concurrent use, and must not be copied.
type Encoder struct {
	Dialect Dialect
	XFields XFields
	// DegradedField adds "X-RateLimit-Degraded: true" to answers to requests that were
	// decided without the store.
	DegradedField bool

	headers headerCache
}

// Dialect is a form of the RateLimit fields; the drafts of the standard have had several.
type Dialect uint8

const (
	// Draft11 sends lists of all limits that applied:
	//
	//	RateLimit-Policy: "per-ip";q=100;w=60, "user-day";q=5000;w=86400
	//	RateLimit: "per-ip";r=42;t=26, "user-day";r=100;t=1728
	Draft11 Dialect = iota
	// Draft7 sends a list of all limits, and the state of one limit:
	//
	//	RateLimit-Policy: 100;w=60, 5000;w=86400
	//	RateLimit: limit=5000, remaining=100, reset=1728
	Draft7
	// Draft3 sends the state of one limit as RateLimit-Limit, RateLimit-Remaining and
	// RateLimit-Reset, the last in seconds from now.
	Draft3
	// NoRateLimit sends no RateLimit fields.
	NoRateLimit
)

// XFields is a form of X-RateLimit-Limit, -Remaining and -Reset.
type XFields uint8

const (
	// XUnix sends the fields with the reset in seconds since 1970, by the store's clock.
	XUnix XFields = iota
	// XDelta sends the fields with the reset in seconds from now.
	XDelta
	// NoXFields does not send the fields.
	NoXFields
)

// Client has the inputs of an answer other than the decision.
type Client struct {
	// Header has the fields of the request: Accept selects the media type of a denial, and Origin is looked up in
	// CORS. It may be nil.
	Header http.Header
	// Fields selects which of the Encoder's fields report the state of limits: see [policy.Policy.Fields].
	Fields policy.Fields
	// CORS has the other origins that may read the answer. Nil means none.
	CORS *policy.CrossOrigin
	// Answers replace the built-in bodies: see [policy.Policy.Answers]. It may be nil.
	Answers *policy.OwnAnswers
}

// Answer is the answer that an integration sends. Encode accepts the zero value, and an Answer that was used
// before.
type Answer struct {
	// Status is a status of HTTP: 200 if the request may pass, else 400, 403, 413, 429, 503 or 529, or the status of
	// the policy's own answer.
	Status int

	decision *policy.Decision
	form     policy.Form
	results  []policy.Result // the results that may be reported to the client, and shadows
	most     int             // the index of the most restrictive result, or -1
	header   *policyHeader   // the header for the results, if they are reported
	fault    string          // what is wrong with a malformed request
	quota    bool            // the body is the state of all limits, unless it is a denial
	problem  *problem        // of a denial, or nil
	media    int             // media type of a denial: an index of offers, or ownBody
	retry    string          // Retry-After of a denial, or empty
	text     []byte          // memory for texts
	arena    arena
}

// undecided is the decision about a malformed request.
var undecided policy.Decision

// Encode turns a into the answer to d, and sets its fields in h. It appends to lists that other middleware has
// started in h. The answer refers to d, so d must not change until a is used again. The values in h stay valid when a
// is used again.
func (e *Encoder) Encode(a *Answer, h http.Header, d *policy.Decision, c Client) {
	a.quota = false
	e.encode(a, h, d, "", c)
	a.own(h, c)
}

// Malformed turns a into the denial of a request too broken to be interpreted, and sets its fields in
// h. The fault is a sentence for people.
func (e *Encoder) Malformed(a *Answer, h http.Header, fault string, c Client) {
	a.quota = false
	e.encode(a, h, &undecided, fault, c)
	a.own(h, c)
}

func (e *Encoder) encode(a *Answer, h http.Header, d *policy.Decision, fault string, c Client) {
	f := newFields(h, &a.arena)
	a.Status, a.decision, a.results, a.most, a.fault, a.retry = http.StatusOK, d, d.Results, -1, fault, ""
	a.form = formOf(d)
	if d.Blocked != "" {
		a.results = nil // the results have no plans
	}
	if len(a.results) > maxVisible {
		a.results = top(a.results, d.Now)
	}
	if e.DegradedField && d.Degraded {
		f.set(fieldDegraded, "true")
	}
	if !d.Allowed {
		a.refuse(f, c.Header["Accept"])
	}
	sent := e.forms(c.Fields)
	if c.CORS != nil && !d.Exempt {
		a.encodeCORS(f, c, sent)
	}
	if d.Now != 0 && a.isLLM() {
		a.encodeLLM(f)
	}
	stated := d.Now != 0 && sent != forms{NoRateLimit, NoXFields}
	if d.Allowed && !stated {
		return
	}
	if a.most = MostRestrictive(a.results, d.Now); a.most < 0 {
		return
	}
	a.header = e.headers.get(a.results, e.Dialect, a.decision.Now)
	if stated {
		a.encodeState(f, sent)
	}
}

// forms are the forms of the fields that report the state of limits.
type forms struct {
	dialect Dialect
	x       XFields
}

// forms returns the encoder's forms of the fields that the policy selects.
func (e *Encoder) forms(sent policy.Fields) forms {
	f := forms{e.Dialect, e.XFields}
	switch sent {
	case policy.IETFFields:
		f.x = NoXFields
	case policy.XFields:
		f.dialect = NoRateLimit
	}
	return f
}

// fields sets header fields.
type fields struct {
	header http.Header
	arena  *arena
	first  bool // no other middleware has set fields
}

func newFields(h http.Header, a *arena) fields { return fields{h, a, len(h) == 0} }

// set sets a field, and replaces the value that other middleware may have set.
func (f fields) set(name, value string) { f.header[name] = f.arena.list(value) }

// join appends a value to the list that other middleware may have started.
func (f fields) join(name, value string) {
	if !f.first {
		if before := f.header[name]; len(before) > 0 {
			f.header[name] = append(slices.Clip(before), value)
			return
		}
	}
	f.set(name, value)
}
