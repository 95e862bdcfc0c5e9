package policy

import (
	"fmt"
	"math/rand/v2"
)

// NameRefusals gives every refused request an ID: see [Decision.RequestID]. Call it before the first
// decision. It needs an observer that keeps or logs refusals, since nothing else can be found by an ID.
func (e *Engine) NameRefusals() { e.named = true }

// RequestID returns the ID of a refused request if [Engine.NameRefusals] was called, else "". It is the
// request's X-Request-Id, or else its ID, if that is at most 128 bytes of printable ASCII,
// and otherwise a random number in 16 hexadecimal digits.
func (d *Decision) RequestID() string {
	if d.id == "" && d.made != 0 {
		return fmt.Sprintf("%016x", d.made)
	}
	return d.id
}

// name sets the ID of a refused request.
func (d *Decision) name(r *Request) {
	if d.id = r.ID; len(r.Header["X-Request-Id"]) > 0 && r.Header["X-Request-Id"][0] != "" {
		d.id = r.Header["X-Request-Id"][0]
	}
	if !isRequestID(d.id) {
		d.id, d.made = "", 1+rand.Uint64N(1<<64-1)
	}
}

// maxRequestID is the length of the longest ID that is sent back, in bytes.
const maxRequestID = 128

func isRequestID(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return s != "" && len(s) <= maxRequestID
}
