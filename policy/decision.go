package policy

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
)

// Request is what a policy looks at. Doors fill it in; the zero value of a field says
// that the door has no such thing.
type Request struct {
	Method string // "GET"; empty is GET
	Host   string // as in http.Request, with or without a port
	// Path is the path as it was sent, escaped ("/a%2fb"), without the query.
	Path     string
	RawQuery string
	// NoPath says that nobody knows the path, as of a request that a server could not read: rules
	// with patterns do not apply to it.
	NoPath bool
	// Peer is the other end of the connection. Who the client is follows from it, and from
	// what the policy's trusted proxies say in a header.
	Peer   netip.Addr
	Header http.Header
	// ForwardedHeader is the name of that header: X-Forwarded-For if empty.
	ForwardedHeader string
	// Body returns the whole body if it has at most limit bytes, else nil; and an error
	// if it broke off, so that nobody gets to see the whole of it. The door restores it
	// for whoever comes next. It is called at most once: if a rule that matches needs it,
	// or with a limit of 0 to learn whether a preflight has one. May be nil.
	Body func(limit int64) ([]byte, error)
	// Attributes are what only the program knows, or another protocol brings, such as the user
	// from a context: rules count by them with "attr:NAME". What is empty is not there.
	Attributes map[string]string
	// TLSFingerprint is the JA4 of the client's TLS: rules count by it with "tls_fingerprint".
	// Empty is none, as without TLS.
	TLSFingerprint string
	// Cost is how many such requests this one counts for: each rule takes as many times its
	// cost, but for those with in_flight. Below 1 it is 1.
	Cost int64
	// Mode is what is asked for: to be charged, unless it says otherwise. A peek is told what
	// remains without it. What is given back is no more than is used, asks nobody who is blocked by
	// [Subject.Block], lifts no penalty, and frees no place in flight.
	Mode Mode
	// Subject, if set, is asked alone, in place of the rules that match, by the policy in force: its
	// override, the tier that its key says or else the default one, and the rule's fixed cost. Of
	// the request only Cost, Mode, ID and Time mean something then. A rule that there is no more
	// limits nothing; one whose key has changed refuses, as Missing says, since it knows the subject
	// under another key: [Engine.Subject] returns it.
	Subject *Subject
	// ID names the request, if it is not empty, so that a proxy that asks again is not charged
	// again: the same request with the same ID, by the keys, limits and costs that it is charged,
	// counts once within [RepeatedWithin]. It is charged in the same step of the store as the
	// limits, so that of many who ask at once one is charged, and it takes the place of a key there.
	// If it was refused it is asked anew, and so it is once it was given back: by [Engine.Refund], or
	// by [GiveBack] with the same ID, which gives back once. What is repeated has nothing to refund or
	// to settle. In a queue it waits for the turn that it had; once that has passed, or if another
	// instance gave it, it takes another turn. An instance that decides while the shared store is away knows only what it has let through
	// itself, and on a cluster it is one step where all charges have one hash tag.
	//
	// Whoever can choose it has as many requests as they like for one: take it from those that are
	// trusted. With an ID bodies are read before any rule is asked, and new refusals are not
	// answered from memory.
	ID string
	// Door names where the request was asked about, such as "gateway", for observers. There are a
	// few, whatever requests say.
	Door string
	// Ends says that the door knows when the request ends, and calls [Engine.Release] then. Else rules
	// with in_flight only look at how many are under way: they refuse while all places are taken, and
	// the request takes none.
	Ends bool
	// Part says that this is a part of a request that is under way, such as a message of a stream: rules
	// with in_flight, which have counted that, leave it alone.
	Part bool
	// Time is when the request is made, for what depends on it in the policy: overrides and
	// blocks that end. Now, if it is zero. The store counts by its own clock.
	Time time.Time
}

// now returns the time of the request in microseconds since the Unix epoch.
func (r *Request) now() int64 {
	if r.Time.IsZero() {
		return time.Now().UnixMicro()
	}
	return r.Time.UnixMicro()
}

// Decision is the answer of an [Engine] to a request. [Engine.DecideInto] uses it again.
type Decision struct {
	// Allowed says that the request may pass, after Delay.
	Allowed bool
	// Exempt says that a rule exempts the request, or that cors exempts preflights: nothing
	// was counted, and Results is empty.
	Exempt bool
	// Degraded says that the shared store did not answer, and that each rule's
	// on_error has decided in its place.
	Degraded bool
	// Unavailable says that the request is refused because of that, and not because of
	// a limit. RetryAfter then says when to ask again.
	Unavailable bool
	// Missing names what a request lacks to be decided about: "an unambiguous path",
	// where servers could read it in too many ways, or the part of a key that a rule with
	// "missing: refuse" asks for, for example "header:X-API-Key". Such a request is
	// refused as malformed. It counts for the rules that can count it all the same, and if
	// these refuse it, that is what the decision says. See [Decision.Ambiguous].
	Missing string
	// Blocked is the name of the rule by which the request is blocked: one with "block", or one
	// of which an override or [Subject.Block] blocks the subject. RetryAfter is how long that
	// lasts, [sluice.Never] for good. Nothing was counted, and nothing is known of the limits.
	Blocked string
	// Repeated says that a request with this ID and these charges was let through before, within
	// [RepeatedWithin]. It is let through again, and nothing was charged, except where it needs
	// another turn in a queue. It is refused only if that is full.
	Repeated bool
	// RetryAfter is the longest wait of the results that refuse, or [sluice.Never].
	RetryAfter time.Duration
	// Delay is the longest delay of the results, if Allowed.
	Delay time.Duration
	// Now is the store's clock in microseconds since the Unix epoch. It is zero if no
	// store has answered; of the results only Allowed means something then.
	Now int64
	// Err is what the store has said in place of an answer, for a log.
	Err error
	// Results has an entry for each limit of each rule that counts the request, in the order of
	// the document; behind these, those of rules with "block" and of subjects that are blocked,
	// which have no plan.
	Results []Result

	held      []*sluice.Hold // what Release releases
	queued    *queued        // what LeaveQueue gives up; nil: nothing
	unsettled *unsettled     // what Settle settles; nil: nothing
	id        string         // see RequestID
	made      uint64         // the same as a number, of a request without an ID
}

// Ambiguous names what of the request servers could read in more than one way, if it is refused for
// that: "path", or a part of a key, for example "body:username". Else it is "".
func (d *Decision) Ambiguous() string {
	what, ok := strings.CutPrefix(d.Missing, unambiguous)
	if !ok {
		return ""
	}
	return what
}

// reset empties d, and keeps its memory.
func (d *Decision) reset() {
	results := d.Results[:0]
	*d = Decision{}
	d.Results = results
}

// Clone returns a copy to be kept where d is used again. What is still to be settled or released is
// so once for both: see [Engine.Settle] and [Engine.Release].
func (d *Decision) Clone() Decision {
	c := *d
	c.Results = slices.Clone(d.Results)
	return c
}

// Result is what one limit of a rule has said.
type Result struct {
	Rule string // its name
	// Name is what clients are told that the limit is called, if its rule has several, such as
	// "api-1h": see [LimitNames]. Otherwise it is empty, and they are told Rule.
	Name string
	Plan *sluice.Plan // nil for what blocks
	// From is what the limit was resolved from: "rule", "tier:pro" or "override", which may
	// block, too; "block" where the rule is there to block, or [Subject.Block] has; "caller" for a
	// limit that the caller has brought: see [Engine.Adhoc].
	From   string
	Source string // of that rule or override: see [Rule]
	Cost   int64
	Owed   int64 // what the key owes beyond the limit: of the results of a [Subject] only
	Shadow bool  // counts and reports, never refuses, or not this subject
	at     int32 // of the rule in the document, counted from 1; 0: in none
	sluice.Decision
}

// Observation is a decision and what it is about. It is only valid until the observer returns,
// and nothing that it points to is to be changed.
type Observation struct {
	Request  *Request
	Decision Decision
	// Began is when the decision began; of a list, when the whole list did.
	Began time.Time
	// Took is how long it took to decide; of a list, how long the whole list did.
	Took time.Duration
	work *work
}

// Policy returns the policy that has decided.
func (o *Observation) Policy() *Policy { return o.work.policy }

// RuleIndex returns which rule of the policy a result is of, by the index of the result: the place
// of the rule in the document, or -1 for a limit that a caller has brought (see [Engine.Adhoc]).
func (o *Observation) RuleIndex(i int) int { return int(o.Decision.Results[i].at) - 1 }

// Pardoned returns what the request lacks, as Missing of a [Decision] says it, if it would be
// refused as malformed by a rule that only watches, or is enforced for a share of its subjects; else
// it is empty.
func (o *Observation) Pardoned() string {
	if o.Decision.Missing != "" || o.Decision.Exempt {
		return ""
	}
	return o.work.pardoned()
}

// Exempting returns the name of the rule that exempts the request; empty if none does, or if cors
// exempts preflights.
func (o *Observation) Exempting() string {
	if r := o.work.matches.exempting; r != nil {
		return r.name
	}
	return ""
}

// Client returns the address of the client, as the policy that has decided resolves it.
func (o *Observation) Client() netip.Addr { return o.work.policy.client(o.Request) }

// Shown returns what people are to see of Sent: all of it, shortened or hashed, as the rule says.
func (o *Observation) Shown(i int) string { return o.Policy().ShownSent(o.Key(i), o.Sent(i)) }

// Key returns the key under which the store counts for a result, by its index, or would if the
// subject were not blocked; of a limit that is shared, that of the tenant. It is empty for a rule with
// "block", which counts nothing.
func (o *Observation) Key(i int) string {
	subjects := o.work.subjects.blocked
	if at := i - (len(o.Decision.Results) - len(subjects)); at >= 0 {
		return subjects[at].key
	}
	if o.Decision.Results[i].Plan == nil {
		return ""
	}
	return o.work.charges.whose[i].key
}
