package policy

import (
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// work is the memory of one decision: the request, and what each stage gives to those behind it. A stage
// writes its own field; previews and lists prepare them. All of it is used again, so nothing in a [Decision]
// refers to it.
//
//	match    which rules apply to the request
//	resolve  whose count each of them is, and what holds for these
//	charge   what each counter of these takes
//	Take     the receipts of the store
//	derive   the decision
type work struct {
	input
	matches  matches
	subjects subjects
	charges  charges
	seen     Observation
	sent     []byte // see Observation.Sent
}

// input is what a decision is about.
type input struct {
	policy  *Policy
	request *Request
	mode    Mode // of the request, or that of a preview of it
	x       parts.Reader
	now     int64 // see clock
}

// clock returns the time of the request in microseconds since the Unix epoch, which is read once.
func (in *input) clock() int64 {
	if in.now == 0 {
		in.now = in.request.now()
	}
	return in.now
}

// maxKept is the most text kept from one decision to the next.
const maxKept = 1 << 16

// begin returns the memory for a decision, whose results it uses again.
func (e *Engine) begin(req *Request, d *Decision) *work {
	w := e.pool.Get().(*work)
	w.begin(e, req, d)
	return w
}

func (w *work) begin(e *Engine, req *Request, d *Decision) {
	w.policy, w.request, w.mode, w.now = e.current(), req, req.Mode, 0
	w.x.Reset(&parts.Request{
		Method: req.Method, Host: req.Host, RawQuery: req.RawQuery, Peer: req.Peer, Header: req.Header, ForwardedHeader: req.ForwardedHeader, Client: req.Client,
		Body: req.Body, Attributes: req.Attributes, TLSFingerprint: req.TLSFingerprint, Trusted: w.policy.trusted, IPv6Prefix: w.policy.ipv6Prefix,
	})
	w.matches.reset()
	w.subjects.reset()
	w.subjects.blocks = e.blocksNow()
	w.charges.results = d.Results
	w.charges.reset()
}

func (e *Engine) end(w *work) {
	if w.subjects.keys.Cap() > maxKept || cap(w.matches.ids) > maxKept || cap(w.charges.list) > maxKept/16 {
		return // of an extraordinary request or policy
	}
	w.x.Forget()
	w.request, w.subjects.blocks, w.charges.results = nil, nil, nil
	if w.seen.Request != nil {
		w.seen = Observation{}
	}
	e.pool.Put(w)
}

// forget drops what rules have made of the request so far, but not which of them apply.
func (w *work) forget() {
	w.subjects.forget()
	w.charges.reset()
}

// cost returns what the request takes from a rule: less than nothing if it gives that back.
func (in *input) cost(r *rule) int64 {
	one := r.cost.fixed
	if r.cost.header != "" && in.request.Subject == nil {
		one = r.cost.of(in.request.Header)
	}
	if !r.inFlight && in.request.Cost > 1 {
		one = times(one, in.request.Cost)
	}
	if in.mode == GiveBack {
		return -one
	}
	return one
}

// lack names the part of a key that a request lacks.
type lack struct {
	part    string
	garbled bool // it is there, and servers may differ in what they read
}

// unambiguous is before the name of what can be read in more than one way.
const unambiguous = "an unambiguous "

// String is what Missing of a [Decision] says.
func (l lack) String() string {
	if l.garbled {
		return unambiguous + l.part
	}
	return l.part
}

// malformed refuses a request for what it lacks, unless the policy only watches.
func (w *work) malformed(d *Decision, lacks string) {
	if !w.policy.watchOnly {
		d.Missing = lacks
		return
	}
	d.Allowed, w.subjects.pardoned, w.matches.doubtful = true, lack{part: lacks}, false
}

// pardoned returns what the request lacks, and would be refused for by a rule that only watches; else "".
func (w *work) pardoned() string {
	if w.matches.doubtful {
		return ambiguousPath
	}
	return w.subjects.pardoned.String()
}

// extend makes a list one longer, and returns the new element, which is to be overwritten.
func extend[T any](list *[]T) *T {
	n := len(*list)
	if n == cap(*list) {
		*list = append(*list, *new(T))
	}
	*list = (*list)[:n+1]
	return &(*list)[n]
}
