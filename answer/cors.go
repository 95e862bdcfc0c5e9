package answer

// exposed are the fields that pages of other origins may read, by dialect.
var exposed = [...]string{
	Draft11:     "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft7:      "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft3:      "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset" + exposedAlways,
	NoRateLimit: exposedAlways[len(", "):],
}

const exposedAlways = ", Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"

// encodeCORS lets a page of an allowed origin read the answer. Of a refusal or a quota that is all
// of it; of what comes from the handler behind the door it is only our fields, if the handler
// lets the page read it at all.
func (a *Answer) encodeCORS(f fields, c Client, dialect Dialect) {
	allowed, origin := a.decision.Allowed && !a.quota, c.Header["Origin"]
	if !allowed && !c.CORS.Any() {
		f.join("Vary", "Origin")
	}
	if len(origin) != 1 || !c.CORS.Allows(origin[0]) {
		return
	}
	f.join("Access-Control-Expose-Headers", exposed[min(dialect, NoRateLimit)])
	if allowed {
		return
	}
	if c.CORS.Any() {
		f.set("Access-Control-Allow-Origin", "*")
		return
	}
	f.set("Access-Control-Allow-Origin", origin[0])
	if c.CORS.Credentials() {
		f.set("Access-Control-Allow-Credentials", "true")
	}
}
