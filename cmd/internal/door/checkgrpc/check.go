package checkgrpc

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/policy"
)

// check is one question.
type check struct {
	request policy.Request
	err     error  // what is wrong with the question: nothing is answered
	fault   string // what is wrong with the request that it is about: it is refused
}

var modes = map[Mode]policy.Mode{Mode_MODE_CHARGE: policy.Charge, Mode_MODE_PEEK: policy.Peek, Mode_MODE_GIVE_BACK: policy.GiveBack}

func (c *check) read(engine *policy.Engine, in *CheckRequest) {
	mode, known := modes[in.GetMode()]
	switch {
	case !known:
		c.err = fmt.Errorf("there is no mode %d", in.GetMode())
	case in.GetCost() < 0 || in.GetCost() > door.MaxUnits:
		c.err = fmt.Errorf("the cost is %d: it must be from 1 to %d", in.GetCost(), int64(door.MaxUnits))
	case in.GetPlace() && mode != policy.Charge:
		c.err = errors.New("it asks for a place in flight, which only what is charged can have: leave out mode or place")
	case len(in.GetId()) > door.MaxID:
		c.err = fmt.Errorf("the id is longer than %d bytes", door.MaxID)
	case in.GetSubject() != nil:
		c.request.Subject, c.err = engine.Subject(in.GetSubject().GetRule(), in.GetSubject().GetKey())
	case in.GetRequest() != nil:
		c.err = c.describe(in.GetRequest())
	default:
		c.err = errors.New("it is about nothing: there must be a request or a subject")
	}
	c.request.Mode, c.request.Cost, c.request.ID, c.request.Ends = mode, in.GetCost(), in.GetId(), in.GetPlace()
}

// describe fills in the request that a check is about.
func (c *check) describe(in *HttpRequest) (err error) {
	if len(in.GetHeaders()) > door.MaxFields || len(in.GetAttributes()) > door.MaxFields {
		return fmt.Errorf("the request has more than %d headers or attributes", door.MaxFields)
	}
	r := &c.request
	if in.GetClient() != "" {
		if r.Peer, err = netip.ParseAddr(in.GetClient()); err != nil {
			return fmt.Errorf("the client %q is no address", in.GetClient())
		}
		r.Peer = r.Peer.Unmap().WithZone("")
	}
	r.Method, r.Host, r.Attributes = in.GetMethod(), in.GetHost(), in.GetAttributes()
	r.Header = make(http.Header, len(in.GetHeaders()))
	for _, h := range in.GetHeaders() {
		name := textproto.CanonicalMIMEHeaderKey(h.GetName())
		r.Header[name] = append(r.Header[name], h.GetValue())
	}
	body := in.GetBody()
	if body == nil {
		body = []byte{} // nil would be one that is too large
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
