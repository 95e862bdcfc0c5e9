package policy

import (
	"slices"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/loads"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// Decision is the answer of an [Engine] to a request. [Engine.DecideInto] reuses its memory.
type Decision struct {
	// Allowed reports that the request may pass, after Delay.
	Allowed bool
	// Exempt reports that a rule exempts the request, or that cors exempts it as a preflight. Nothing was
	// counted, and Results is empty.
	Exempt bool
	// Degraded reports that the shared store did not answer for at least one limit, and that on_error of its rule
	// decided in its place.
	Degraded bool
	// Unavailable reports that the request is denied because the store did not answer, and not because of a limit.
	// RetryAfter is then the wait before a retry.
	Unavailable bool
	// Missing is what a request lacks for a decision, for example "an unambiguous path" if servers could read its path
	// in several ways, or "header:X-API-Key" if a rule with "missing: refuse" requires this key part. Such a request
	// is denied as malformed. Rules that can count the request do so, and if one of these rules denies it, that denial
	// is the decision. See [Decision.Ambiguous].
	Missing string
	// Blocked is the name of the rule that blocks the request: a rule with "block", or a rule for which an override
	// or [Subject.Block] blocks the subject. RetryAfter is how long the block lasts, or [sluice.Never] if it has no
	// end. Nothing was counted, and the state of the limits is unknown.
	Blocked string
	// Overloaded is the name of the rule that denies the request because the upstream is overloaded. Such a rule has an
	// automatic limit of requests under way: see [Load]. Nothing was counted.
	Overloaded string
	// Repeated reports that a request with this ID and these charges was allowed before, within [RepeatedWithin]. It is
	// allowed again, without a charge. But if it needs another turn in a queue, the turn is charged, and the request is
	// denied if the queue is full.
	Repeated bool
	// RetryAfter is the longest wait of the results that deny the request, or [sluice.Never].
	RetryAfter time.Duration
	// Delay is the longest delay of the results, if Allowed.
	Delay time.Duration
	// Now is the store's clock in microseconds since the Unix epoch. It is zero if no store has answered, or if
	// on_error denies the request; then only Allowed and RetryAfter of each result are meaningful.
	Now int64
	// Err is the error of the store, for a log.
	Err error
	// Form is the form of the answer, which follows from the Answer of a [Rule].
	Form Form
	// CallID is the ID of the JSON-RPC request in the body, as JSON: a string or a number, or null for a batch. It is
	// set if Form is [MCP] and the request is denied or delayed, and empty if the body is no such request.
	CallID string
	// Results has an entry for each limit of each rule that counts the request, in the order of the document. After
	// these come entries without a plan, for rules with "block" and for blocked subjects.
	Results []Result
	// Loads has an entry for each automatic limit of requests under way that was evaluated.
	Loads []Load

	load      loads.Ref      // the permits of Loads
	held      []*sluice.Hold // the permits that Release releases
	queued    *queued        // the turns that LeaveQueue gives up, or nil
	unsettled *unsettled     // the charges that Settle settles, or nil
	id        string         // see RequestID
	made      uint64         // the ID as a number, if the request has no ID of its own
}

// Ambiguous returns the part of the request that servers could read in more than one way, if the request is denied
// for this reason: "path", or a key part, for example "body:username". Otherwise it returns "".
func (d *Decision) Ambiguous() string {
	what, ok := strings.CutPrefix(d.Missing, unambiguous)
	if !ok {
		return ""
	}
	return what
}

// TooLarge reports whether a request is denied because its body is larger than the policy's body_limit, or because
// of [ErrBodyPart].
func (d *Decision) TooLarge() bool {
	return d.Missing == parts.WholeBody || d.BodyLimit() != ""
}

// BodyLimit returns the policy's body_limit, such as "8MiB", if the request is denied because its body is larger. It is
// empty for all other decisions.
func (d *Decision) BodyLimit() (size string) {
	size, ok := strings.CutPrefix(d.Missing, parts.SmallerBody)
	if !ok {
		return ""
	}
	return size
}

// NoBodyMemory reports whether a request is denied because of [ErrBodyMemory].
func (d *Decision) NoBodyMemory() bool { return d.Missing == parts.BodyMemory }

// Mismatched returns the name of a header field, such as Mcp-Method, that should repeat a field of the body, if the
// request is denied because the two differ. It is empty for all other decisions.
func (d *Decision) Mismatched() (header string) {
	header, ok := strings.CutPrefix(d.Missing, parts.MatchingHeader)
	if !ok {
		return ""
	}
	return header
}

// reset empties d, and keeps its memory.
func (d *Decision) reset() {
	results, asked := d.Results[:0], d.Loads[:0]
	*d = Decision{}
	d.Results, d.Loads = results, asked
}

// Clone returns a copy that stays valid when d is reused. The request is settled and released only once, by either
// copy: see [Engine.Settle] and [Engine.Release].
func (d *Decision) Clone() Decision {
	c := *d
	c.Results, c.Loads = slices.Clone(d.Results), slices.Clone(d.Loads)
	return c
}

// Result is the result of one limit of a rule.
type Result struct {
	Rule string // the name of the rule
	// Name is the name of the limit in fields for clients, such as "api-1h", if its rule has several limits: see
	// [LimitNames]. Otherwise it is empty, and clients see Rule.
	Name string
	Plan *sluice.Plan // nil for a block
	// From is the origin of the limit: "rule", "tier:pro", "override", or "caller" for a limit that the caller supplies
	// (see [Engine.Adhoc]). For a block it is "override", or "block" if the rule has "block" or [Subject.Block] blocks
	// the subject.
	From   string
	Source string // the source of that rule or override: see [Rule]
	Cost   int64
	Owed   int64 // the debt of the key; set only in results of a [Subject] and of requests with Mode [Peek]
	Unit   Unit  // the unit of the rule's cost
	Shadow bool  // the limit counts and reports, but does not deny: the rule is a shadow, or its Enforce leaves this subject out
	// Marks reports that a request that does not fit passes with a mark: see [Result.Over]. Such a result is also a
	// Shadow.
	Marks bool
	// UnderWay reports that the request is denied only because of the estimates charged for requests that are still
	// under way: without these estimates it would fit. RetryAfter is then about as long as these requests take.
	UnderWay bool
	at       int32 // position of the rule in the document, counted from 1; 0 for a limit that the caller supplies
	sluice.Decision
}

// Because returns why the result denies the request: "limit", "reserved" (see UnderWay), "penalty", "block", or
// "store" if the store is unavailable and on_error is deny. It returns "" for a result that allows the request.
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
	case r.UnderWay:
		return "reserved"
	}
	return "limit"
}
