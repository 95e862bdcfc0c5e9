package policy

import "github.com/sluicehq/sluice/policy/internal/parts"

// work is the memory of one decision: the request, and the output of each stage. Each stage writes its own field.
// Previews and DecideEach also set fields of other stages. The memory is reused, so nothing in a [Decision] refers to
// it.
//
//	match    finds the rules that apply to the request
//	resolve  finds the subject of each rule, and the limits in force for it
//	charge   makes the charges of these limits, and of counters
//	Take     returns the receipts of the store
//	derive   makes the decision
type work struct {
	input
	matches  matches
	subjects subjects
	charges  charges
	seen     Observation
	sent     []byte // see Observation.Sent
}

// input is the request of a decision, and the policy that decides.
type input struct {
	policy  *Policy
	request *Request
	mode    Mode // the Mode of the request, or Peek during a preview
	timed   bool // automatic limits of requests under way count the request
	x       parts.Reader
	now     int64 // see clock
	demand  demand
}

// clock returns the time of the request in microseconds since the Unix epoch. It reads the clock once.
func (in *input) clock() int64 {
	if in.now == 0 {
		in.now = in.request.now()
	}
	return in.now
}

// maxKept bounds the memory that is kept for the next decision: the bytes of keys, and the length of each list.
const maxKept = 1 << 16

// begin returns the working memory for the decision d, and reuses the memory of d's results.
func (e *Engine) begin(req *Request, d *Decision) *work {
	w := e.pool.Get().(*work)
	w.begin(e, req, d)
	return w
}

func (w *work) begin(e *Engine, req *Request, d *Decision) {
	w.policy, w.request, w.mode, w.now, w.demand = e.current(), req, req.Mode, 0, demand{output: -1}
	w.read(req)
	w.timed = req.Timed && req.Mode == Charge && req.Subject == nil && w.policy.adapts
	w.matches.reset()
	w.subjects.reset()
	w.subjects.blocks = e.blocksNow()
	w.charges.results = d.Results
	w.charges.reset()
}

// read sets the request from which in.x reads parts.
func (in *input) read(req *Request) {
	x, p := in.x.Reset(), in.policy
	x.Method, x.Host, x.RawQuery, x.Header, x.Body = req.Method, req.Host, req.RawQuery, req.Header, req.Body
	x.Peer, x.Client, x.ForwardedHeader, x.Trusted, x.IPv6Prefix = req.Peer, req.Client, req.ForwardedHeader, p.trusted, p.ipv6Prefix
	if x.Path = req.Path; req.NoPath {
		x.Path = ""
	}
	x.BodyLimit, x.Attributes, x.TLSFingerprint, x.Recorded = p.bodyLimit, req.Attributes, req.TLSFingerprint, req.Recorded
}

func (e *Engine) end(w *work) {
	if w.subjects.keys.Cap() > maxKept || cap(w.matches.ids) > maxKept || cap(w.charges.list) > maxKept/16 {
		return // drop the memory of an exceptionally large request or policy
	}
	w.x.Forget()
	w.request, w.subjects.blocks, w.charges.results = nil, nil, nil
	if w.seen.Request != nil {
		w.seen = Observation{}
	}
	e.pool.Put(w)
}

// forget drops subjects and charges, and keeps the rules that apply.
func (w *work) forget() {
	w.subjects.forget()
	w.charges.reset()
}

// whole returns the cost of the request for a subject before it is cut to a limit. If the rule reads the response,
// whole also sets the reservation of s.
func (in *input) whole(s *subject) int64 {
	if s.rule.cost.usage == nil {
		return in.cost(s.rule)
	}
	s.reserved = in.reserve(s.rule)
	return in.times(s.rule, s.reserved.cost)
}

// cost returns the cost of the request under a rule that does not read the response's body. The cost is negative
// for a request with Mode GiveBack.
func (in *input) cost(r *rule) int64 {
	if r.cost.header != "" && in.request.Subject == nil {
		return in.times(r, r.cost.fromHeader(in.request.Header))
	}
	return in.times(r, r.cost.fixed)
}

// times multiplies one, the cost of a single request, by the number of requests that the request counts as. The
// result is negative for a refund.
func (in *input) times(r *rule, one int64) int64 {
	if !r.inFlight && in.request.Cost > 1 {
		one = times(one, in.request.Cost)
	}
	if in.mode == GiveBack {
		return -one
	}
	return one
}

// lack is a part that a request lacks.
type lack struct {
	part    string
	garbled bool // the part is present, but servers may read it differently
}

// unambiguous precedes the name of a part that can be read in more than one way.
const unambiguous = "an unambiguous "

// String returns the text of the field Missing of a [Decision].
func (l lack) String() string {
	if l.garbled {
		return unambiguous + l.part
	}
	return l.part
}

// malformed denies a request that lacks something, unless the whole policy is a shadow.
func (w *work) malformed(d *Decision, lacks string) {
	if !w.policy.watchOnly {
		d.Missing = lacks
		return
	}
	d.Allowed, w.subjects.pardoned, w.matches.doubtful = true, lack{part: lacks}, false
}

// pardoned returns the part that the request lacks if only shadows and rules with Enforce would deny it for that, and
// otherwise "".
func (w *work) pardoned() string {
	if w.matches.doubtful {
		return ambiguousPath
	}
	return w.subjects.pardoned.String()
}

// extend appends an element, and returns a pointer to it. The element may have old values, so the caller overwrites
// all of it.
func extend[T any](list *[]T) *T {
	n := len(*list)
	if n == cap(*list) {
		*list = append(*list, *new(T))
	}
	all := (*list)[:n+1]
	*list = all
	return &all[n]
}
