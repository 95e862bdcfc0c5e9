package httplimit

import "github.com/sluicehq/sluice/policy"

// exposed are the fields that pages of other origins may read, by dialect.
var exposed = [...]string{
	Draft11:     "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft7:      "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft3:      "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset" + exposedAlways,
	NoRateLimit: exposedAlways[len(", "):],
}

const exposedAlways = ", Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"

// sayCORS lets a page of an allowed origin read what is told. In an answer of our own that
// is all of it; in that of a handler the fields of ours, if the handler lets the page read
// it at all.
func (c *call) sayCORS(f *fields, cors *policy.CrossOrigin, dialect Dialect) {
	if cors == nil {
		return
	}
	from := c.r.Header["Origin"]
	if !c.decision.Allowed && !cors.Any() {
		f.add("Vary", f.header["Vary"], "Origin")
	}
	if len(from) != 1 || !cors.Allows(from[0]) {
		return
	}
	f.add("Access-Control-Expose-Headers", f.header["Access-Control-Expose-Headers"], exposed[min(dialect, NoRateLimit)])
	if c.decision.Allowed {
		return
	}
	if cors.Any() {
		f.set("Access-Control-Allow-Origin", "*")
		return
	}
	f.set("Access-Control-Allow-Origin", from[0])
	if cors.Credentials() {
		f.set("Access-Control-Allow-Credentials", "true")
	}
}
