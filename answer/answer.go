package answer

import (
	"net/http"
	"slices"

	"github.com/sluicehq/sluice/policy"
)

// Encoder turns decisions into answers. The zero value sends the fields that package answer
// describes. It is safe for concurrent use, and must not be copied.
type Encoder struct {
	Dialect Dialect
	XFields XFields
	// DegradedField adds "X-RateLimit-Degraded: true" to answers to requests that were
	// decided without the store.
	DegradedField bool

	headers headerCache
}

// Dialect is a form of the RateLimit fields, of which the drafts of the standard have
// had several.
type Dialect uint8

const (
	// Draft11 sends lists of all limits that applied:
	//
	//	RateLimit-Policy: "per-ip";q=100;w=60, "user-day";q=5000;w=86400
	//	RateLimit: "per-ip";r=42;t=26, "user-day";r=100;t=1728
	Draft11 Dialect = iota
	// Draft7 sends a list of what there is, and the state of one limit:
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
	// XUnix sends them with the reset in seconds since 1970, by the store's clock.
	XUnix XFields = iota
	// XDelta sends them with the reset in seconds from now.
	XDelta
	// NoXFields does not send them.
	NoXFields
)

// Client is what an answer depends on besides the decision.
type Client struct {
	// Header has the fields of the request: Accept chooses the media type of a refusal,
	// Origin is looked up in CORS. May be nil.
	Header http.Header
	// CORS says which pages of other origins may read the answer. Nil is none.
	CORS *policy.CrossOrigin
}

// Answer is what a door says. The zero value is ready to be encoded into, again and again;
// the values of its fields are never overwritten.
type Answer struct {
	// Status is a status of HTTP: 200 if the request may pass, else 400, 429 or 503.
	Status int
	// Fields are the header fields, each name once. They are valid until the next Encode.
	Fields []Field

	decision *policy.Decision
	results  []policy.Result // those that the client may be told about, and shadows
	most     int             // the index of the most restrictive of them, or -1
	header   *policyHeader   // of the results; nil if most is -1
	fault    string          // what is wrong with a malformed request
	media    int             // of a refusal, as an index of offers
	retry    string          // Retry-After, if a refusal has that
	text     []byte          // what is being written
	arena    arena
}

// Field is a header field.
type Field struct {
	Name  string // in the form of http.CanonicalHeaderKey
	Value string
	// Join says that the value goes on with a list that somebody else may have begun. Of
	// other fields it replaces what is there.
	Join bool
}

// undecided is the decision about a malformed request.
var undecided policy.Decision

// Encode makes a the answer to d. It refers to d, which has to stay as it is until a is
// used again.
func (e *Encoder) Encode(a *Answer, d *policy.Decision, c Client) { e.encode(a, d, "", c) }

// Malformed makes a the refusal of a request that nobody should try to understand. The fault
// is a sentence for people.
func (e *Encoder) Malformed(a *Answer, fault string, c Client) { e.encode(a, &undecided, fault, c) }

func (e *Encoder) encode(a *Answer, d *policy.Decision, fault string, c Client) {
	a.Reset()
	a.Status, a.decision, a.results, a.fault = http.StatusOK, d, d.Results, fault
	if len(a.results) > maxVisible {
		a.results = top(a.results, d.Now)
	}
	if e.DegradedField && d.Degraded {
		a.set(fieldDegraded, "true")
	}
	if !d.Allowed {
		a.refuse(c.Header["Accept"])
	}
	if c.CORS != nil && !d.Exempt {
		a.encodeCORS(c, e.Dialect)
	}
	stated := d.Now != 0 && (e.Dialect != NoRateLimit || e.XFields != NoXFields)
	if d.Allowed && !stated {
		return
	}
	if a.most = mostRestrictive(a.results, d.Now); a.most < 0 {
		return
	}
	a.header = e.headers.of(a.results, e.Dialect)
	if stated {
		a.encodeState(e)
	}
}

// Reset lets go of the decision and of the request, for an answer that is kept for another
// one.
func (a *Answer) Reset() {
	clear(a.Fields)
	a.Status, a.Fields = 0, a.Fields[:0]
	a.decision, a.results, a.most, a.header = nil, nil, -1, nil
	a.fault, a.retry = "", ""
}

func (a *Answer) set(name, value string) {
	a.Fields = append(a.Fields, Field{Name: name, Value: value})
}

func (a *Answer) join(name, value string) {
	a.Fields = append(a.Fields, Field{Name: name, Value: value, Join: true})
}

// SetFields sets the fields in h. Lists there do not change; those that are gone on with are
// copied.
func (a *Answer) SetFields(h http.Header) {
	for i := range a.Fields {
		f := &a.Fields[i]
		if f.Join {
			if before := h[f.Name]; len(before) > 0 {
				h[f.Name] = append(slices.Clip(before), f.Value)
				continue
			}
		}
		h[f.Name] = a.arena.list(f.Value)
	}
}
