package answer

// exposed are the fields that pages of other origins may read, by dialect.
var exposed = [...]string{
	Draft11:     "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft7:      "RateLimit, RateLimit-Policy" + exposedAlways,
	Draft3:      "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset" + exposedAlways,
	NoRateLimit: exposedAlways[len(", "):],
}

const exposedAlways = ", Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"

// encodeCORS lets a page of an allowed origin read the answer: all of a refusal or a quota, but only
// our own fields in a response of the handler behind the door, if the handler lets the page read that
// at all.
func (a *Answer) encodeCORS(f fields, c Client, dialect Dialect) {
	allowed, origin := a.decision.Allowed && !a.quota, c.Header["Origin"]
	if !allowed && !c.CORS.Any() {
		f.join("Vary", "Origin")
	}
	if len(origin) != 1 || !c.CORS.Allows(origin[0]) {
		return
	}
	names := exposed[min(dialect, NoRateLimit)]
	if a.isLLM() {
		names += ", " + exposedLLM[a.form]
	}
	f.join("Access-Control-Expose-Headers", names)
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
