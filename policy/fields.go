package policy

// Fields selects the header fields that report the state of limits to clients: see Fields of [Document].
type Fields uint8

const (
	BothFields Fields = iota // the zero value
	IETFFields               // RateLimit and RateLimit-Policy
	XFields                  // X-RateLimit-Limit, X-RateLimit-Remaining and X-RateLimit-Reset
)

var fieldNames = []string{BothFields: "both", IETFFields: "ietf", XFields: "x-ratelimit"}

// Fields returns which fields report the state of limits to clients.
func (p *Policy) Fields() Fields { return p.fields }
