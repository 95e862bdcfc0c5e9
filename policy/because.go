package policy

import "github.com/sluicehq/sluice"

// Because says what refuses: "limit", "penalty", "block", or "store" if the store is away and on_error
// is deny. It is empty for a result that does not refuse.
func (r *Result) Because() string {
	switch {
	case r.Allowed:
		return ""
	case r.Plan == nil:
		return "block"
	case r.Origin == sluice.ByOnError:
		return "store"
	case r.Locked:
		return "penalty"
	}
	return "limit"
}
