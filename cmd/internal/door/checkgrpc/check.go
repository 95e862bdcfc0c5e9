package checkgrpc

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// check is a converted CheckRequest.
type check struct {
	request policy.Request
	err     error  // if not nil, the check is invalid, and no decision is made
	fault   string // if not "", the described request is invalid, and denied
}

var modes = map[Mode]policy.Mode{Mode_MODE_CHARGE: policy.Charge, Mode_MODE_PEEK: policy.Peek, Mode_MODE_GIVE_BACK: policy.GiveBack}

func (c *check) read(engine *policy.Engine, in *CheckRequest) {
	mode, known := modes[in.GetMode()]
	switch {
	case !known:
		c.err = fmt.Errorf("unknown mode %d", in.GetMode())
	case in.GetCost() < 0 || in.GetCost() > door.MaxUnits:
		c.err = fmt.Errorf("the cost is %d: it must be from 1 to %d", in.GetCost(), int64(door.MaxUnits))
	case in.GetPlace() && mode != policy.Charge:
		c.err = errors.New("only a charged check can have a place: omit mode or place")
	case len(in.GetId()) > door.MaxID:
		c.err = fmt.Errorf("the id is longer than %d bytes", door.MaxID)
	case in.GetSubject() != nil:
		c.request.Subject, c.err = engine.Subject(in.GetSubject().GetRule(), in.GetSubject().GetKey())
	case in.GetRequest() != nil:
		c.err = c.describe(in.GetRequest())
	default:
		c.err = errors.New("the check needs a request or a subject")
	}
	c.request.Mode, c.request.Cost, c.request.ID, c.request.Ends = mode, in.GetCost(), in.GetId(), in.GetPlace()
}

// describe fills in the request of a check.
func (c *check) describe(in *HttpRequest) (err error) {
	if len(in.GetHeaders()) > door.MaxFields || len(in.GetAttributes()) > door.MaxFields {
		return fmt.Errorf("the request has more than %d headers or attributes", door.MaxFields)
	}
	r := &c.request
	if in.GetClient() != "" {
		if r.Peer, err = netip.ParseAddr(in.GetClient()); err != nil {
			return fmt.Errorf("the client %q is not an IP address", in.GetClient())
		}
		r.Peer = r.Peer.Unmap().WithZone("")
	}
	r.Method, r.Host, r.Attributes = in.GetMethod(), in.GetHost(), in.GetAttributes()
	r.Header = headerOf(in.GetHeaders())
	body := in.GetBody()
	if body == nil {
		body = []byte{} // not nil, which would mean that the body is too large
	}
	r.Body = func(limit int64) ([]byte, error) {
		if int64(len(body)) > limit {
			return nil, nil
		}
		return body, nil
	}
	c.fault = r.Aim(in.GetPath())
	return nil
}

// settled validates the outcome in a request to settle c, and sets the time of the charge.
func (c *check) settled(in *SettleRequest) error {
	o := in.GetOutcome()
	switch {
	case o == nil:
		return errors.New("the outcome is missing")
	case c.fault != "":
		return errors.New(c.fault) // an invalid request was never charged
	case c.request.Mode != policy.Charge || c.request.Ends:
		return errors.New("only a charge can be settled: omit mode and place")
	case in.GetAt() != nil && !in.GetAt().IsValid():
		return errors.New("the time of the check is not a valid time")
	case o.GetStatus() != 0 && (o.GetStatus() < 100 || o.GetStatus() > 599):
		return fmt.Errorf("the status %d is not an HTTP status", o.GetStatus())
	case len(o.GetHeaders()) > door.MaxFields || len(o.GetNumbers()) > door.MaxFields:
		return fmt.Errorf("the outcome has more than %d headers or numbers", door.MaxFields)
	}
	for _, n := range append(slices.Collect(maps.Values(o.GetNumbers())), o.GetBytes(), o.GetCost()) {
		if n < 0 || n > door.MaxUnits {
			return fmt.Errorf("the outcome has the number %d: it must be from 0 to %d", n, int64(door.MaxUnits))
		}
	}
	if in.GetAt() != nil {
		c.request.Time = in.GetAt().AsTime()
	}
	return nil
}

// outcomeOf converts a valid outcome.
func outcomeOf(in *Outcome) policy.Outcome {
	o := policy.Outcome{Status: int(in.GetStatus()), Header: headerOf(in.GetHeaders()), Bytes: -1, Numbers: in.GetNumbers()}
	if in.Bytes != nil {
		o.Bytes = in.GetBytes()
	}
	if in.Cost != nil {
		if o.Cost = in.GetCost(); o.Cost == 0 {
			o.Cost = -1 // -1 means a cost of 0, because with 0 the cost is read from the response
		}
	}
	if in.Counts != nil {
		if o.Verdict = policy.CountsNot; in.GetCounts() {
			o.Verdict = policy.Counts
		}
	}
	return o
}

// headerOf returns header fields with canonical names.
func headerOf(fields []*Header) http.Header {
	h := make(http.Header, len(fields))
	for _, f := range fields {
		name := textproto.CanonicalMIMEHeaderKey(f.GetName())
		h[name] = append(h[name], f.GetValue())
	}
	return h
}
