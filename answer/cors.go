package answer

import "github.com/sluicehq/sluice/policy"

// exposed are the fields that pages of other origins may read, by dialect, without and with the X-RateLimit fields.
var exposed = func() (names [NoRateLimit + 1][2]string) {
	for dialect, own := range [...]string{
		Draft11:     "RateLimit, RateLimit-Policy, ",
		Draft7:      "RateLimit, RateLimit-Policy, ",
		Draft3:      "RateLimit-Limit, RateLimit-Remaining, RateLimit-Reset, ",
		NoRateLimit: "",
	} {
		names[dialect] = [2]string{own + "Retry-After", own + "Retry-After, X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset"}
	}
	return names
}()

// encodeCORS lets pages of allowed origins read a denial or a quota. In a response of the handler, it only exposes
// Sluice's own fields. The handler decides whether such a page may read the response at all.
func (a *Answer) encodeCORS(f fields, c Client, sent forms) {
	allowed, origin := a.decision.Allowed && !a.quota, c.Header["Origin"]
	if !allowed && !c.CORS.Any() {
		f.join("Vary", "Origin")
	}
	if len(origin) != 1 || !c.CORS.Allows(origin[0]) {
		return
	}
	x := 1
	if sent.x == NoXFields {
		x = 0
	}
	names := exposed[min(sent.dialect, NoRateLimit)][x]
	if a.isLLM() {
		names += ", " + exposedLLM[a.form]
	}
	if !allowed && a.decision.RequestID() != "" {
		names += ", " + fieldRequestID
		if a.form == policy.Anthropic {
			names += ", " + fieldCallID
		}
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
