package histories

import (
	"cmp"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/sluicehq/sluice/policy"
)

// costField is the header field with the cost of a request.
const costField = "X-Cost"

// fields returns the headers of a request, including its cost.
func (r *request) fields() http.Header {
	h := r.header.Clone()
	if r.cost > 0 {
		h.Set(costField, strconv.FormatInt(r.cost, 10))
	}
	return h
}

var modes = map[string]policy.Mode{"": policy.Charge, "peek": policy.Peek, "refund": policy.GiveBack}

// openEngine asks a [policy.Engine].
func openEngine(p *player) func(*ongoing) {
	return func(o *ongoing) {
		q := &policy.Request{
			Method: o.method, Header: o.fields(), Peer: netip.MustParseAddr(o.client), ID: o.id, Mode: modes[o.mode], Ends: true,
		}
		q.Body = func(limit int64) ([]byte, error) {
			if int64(len(o.body)) > limit {
				return nil, nil
			}
			return []byte(o.body), nil
		}
		if fault := q.Aim(o.path); fault != "" {
			p.Fatalf("%s: %s", p.at, fault)
		}
		d := p.engine.Decide(p.Context(), q)
		o.got = verdictOf(&d)
		if !d.Allowed || o.mode != "" {
			return
		}
		o.finally(func() {
			if r := o.response; r != nil {
				p.engine.Settle(p.Context(), d, policy.Outcome{Status: r.status, Header: r.header, Bytes: int64(r.bytes)})
			}
			p.engine.Release(p.Context(), d)
		})
	}
}

func verdictOf(d *policy.Decision) verdict {
	v := verdict{
		status: statusOf(d), retry: d.RetryAfter, delay: d.Delay, exempt: d.Exempt, repeated: d.Repeated,
		blocked: d.Blocked, missing: d.Missing,
	}
	for i := range d.Results {
		r := &d.Results[i]
		if r.Plan == nil {
			continue
		}
		v.left = append(v.left, left{name: cmp.Or(r.Name, r.Rule), units: r.Remaining, shadow: r.Shadow})
	}
	return v
}

func statusOf(d *policy.Decision) int {
	switch {
	case d.Allowed:
		return http.StatusOK
	case d.Blocked != "":
		return http.StatusForbidden
	case d.TooLarge():
		return http.StatusRequestEntityTooLarge
	case d.Missing != "":
		return http.StatusBadRequest
	case d.Unavailable:
		return http.StatusServiceUnavailable
	}
	return http.StatusTooManyRequests
}
