// Package otellimit adds an event for each rate limit decision to the request's OpenTelemetry span. It needs only
// OpenTelemetry's API. If no SDK is installed, or a request is not sampled, it makes no event, and its only cost
// is that of an observer of decisions.
package otellimit

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/policy"
)

// Event is the name of the event. OpenTelemetry's semantic conventions have no attributes for rate limits, so the
// attributes have names of Sluice's own:
//
//   - sluice.outcome: "allow", "delayed", "degraded", "would_deny", "marked" or "deny", as in package telemetry
//   - sluice.door: as in [policy.Request]
//   - sluice.mode: "peek" or "give_back" if nothing is charged
//   - sluice.refused_by: the rules that deny the request
//   - sluice.would_be_refused_by: the rules that the request exceeds, but that are in shadow mode or only mark it
//   - sluice.because: the reason for a denial, as in [policy.Result.Because] or [policy.Load.Because], or "malformed"
//   - sluice.missing: the key part that a malformed request lacks
//   - sluice.class: the class of a request that is denied because of an overload
//   - sluice.limit, sluice.remaining: the limit with the smallest fraction left, by its name for clients, and the units left
//   - sluice.subject: the subject of the rule that denies; if none denies, of the first rule in
//     sluice.would_be_refused_by, or else of the rule in sluice.limit; in the form that show_key allows
//   - sluice.retry_after, sluice.delay: in seconds
//   - sluice.degraded: whether the decision was made without the shared store
const Event = "sluice.decision"

// Observe adds an event for each decision of e to the span in the decision's context, if that span is recorded.
// Call Observe before the first decision. If a list of requests is decided together, all events go to one span.
func Observe(e *policy.Engine) { e.Observe(note) }

func note(ctx context.Context, o *policy.Observation) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		span.AddEvent(Event, trace.WithAttributes(attributes(o)...))
	}
}

const maxText = 160 // the most bytes of an attribute

func attributes(o *policy.Observation) []attribute.KeyValue {
	d := &o.Decision
	all := make([]attribute.KeyValue, 0, 12)
	text := func(name, value string) {
		if value != "" {
			all = append(all, attribute.String(name, printable.Text(value, maxText)))
		}
	}
	refused, shadows, about := refusals(d)
	refused, shadows, load := overloads(d, refused, shadows)
	lacks := cmp.Or(d.Missing, o.Pardoned())
	text("sluice.outcome", outcome(d, len(shadows) > 0 || lacks != ""))
	text("sluice.door", o.Request.Door)
	text("sluice.mode", modes[o.Request.Mode])
	all = append(all, attribute.Bool("sluice.degraded", d.Degraded))
	if len(refused) > 0 {
		all = append(all, attribute.StringSlice("sluice.refused_by", refused))
	}
	if len(shadows) > 0 {
		all = append(all, attribute.StringSlice("sluice.would_be_refused_by", shadows))
	}
	tightest := tightest(d)
	if tightest >= 0 {
		r := &d.Results[tightest]
		name := r.Name
		if name == "" {
			name = r.Rule
		}
		text("sluice.limit", name)
		all = append(all, attribute.Int64("sluice.remaining", value(r)))
	}
	if about < 0 {
		about = tightest
	}
	malformed := len(refused) == 0 && (d.Missing != "" || len(shadows) == 0 && lacks != "")
	because := func(why string) {
		if !malformed {
			text("sluice.because", why)
		}
	}
	if malformed {
		text("sluice.because", "malformed")
		text("sluice.missing", lacks)
	}
	if load >= 0 && (about < 0 || d.Overloaded != "" || d.Results[about].Allowed) {
		because(d.Loads[load].Because())
		text("sluice.class", d.Loads[load].Class)
		text("sluice.subject", o.LoadShown(load))
	} else if about >= 0 {
		because(d.Results[about].Because())
		if o.Key(about) != "" {
			text("sluice.subject", o.Shown(about))
		}
	}
	if seconds, ok := (sluice.Decision{RetryAfter: d.RetryAfter}).RetryAfterSeconds(); ok && !d.Allowed {
		all = append(all, attribute.Int64("sluice.retry_after", seconds))
	}
	if d.Delay > 0 {
		all = append(all, attribute.Float64("sluice.delay", d.Delay.Round(time.Millisecond).Seconds()))
	}
	return all
}

var modes = map[policy.Mode]string{policy.Peek: "peek", policy.GiveBack: "give_back"}

// refusals returns the rules that deny, and the rules that would deny if they were enforced. The return value about is
// the index of the first result that denies or, if no result denies, of the first that would deny, or -1.
func refusals(d *policy.Decision) (refused, shadows []string, about int) {
	about = -1
	for i := range d.Results {
		switch r := &d.Results[i]; {
		case r.Allowed:
		case r.Shadow:
			shadows = add(shadows, r.Rule)
			if about < 0 {
				about = i
			}
		default:
			if len(refused) == 0 {
				about = i
			}
			refused = add(refused, r.Rule)
		}
	}
	return refused, shadows, about
}

// overloads adds rules with an automatic limit (in_flight: auto): the rules that deny the request to the list refused,
// and the rules that would deny it to the list shadows. It returns the index of the load that the event describes, or
// -1.
func overloads(d *policy.Decision, refused, shadows []string) (by, would []string, about int) {
	about = -1
	for i := range d.Loads {
		switch l := &d.Loads[i]; {
		case l.Allowed:
		case l.Shadow:
			shadows = add(shadows, l.Rule)
			if about < 0 {
				about = i
			}
		default:
			refused, about = add(refused, l.Rule), i
		}
	}
	return refused, shadows, about
}

// maxRules is the most rules that an attribute names.
const maxRules = 16

// add appends a rule, unless the rule before it is the same: a rule can have several results in a row.
func add(rules []string, rule string) []string {
	rule = printable.Text(rule, maxText)
	if n := len(rules); n == maxRules || n > 0 && rules[n-1] == rule {
		return rules
	}
	return append(rules, rule)
}

// tightest returns the index of the enforced result with the smallest remaining fraction, or -1.
func tightest(d *policy.Decision) int {
	best := -1
	if d.Now == 0 { // the remaining units are unknown
		return best
	}
	for i := range d.Results {
		if r := &d.Results[i]; r.Plan != nil && !r.Shadow && (best < 0 || share(r) < share(&d.Results[best])) {
			best = i
		}
	}
	return best
}

// value returns the remaining units of a limit, in micro-USD if the limit is in USD.
func value(r *policy.Result) int64 {
	if r.Plan == nil {
		return r.Remaining
	}
	return r.Plan.Limit.Value(r.Remaining)
}

func share(r *policy.Result) float64 { return float64(r.Remaining) / float64(r.Plan.Capacity) }

func outcome(d *policy.Decision, would bool) string {
	switch {
	case !d.Allowed:
		return "deny"
	case d.Over() != nil:
		return "marked"
	case would:
		return "would_deny"
	case d.Degraded:
		return "degraded"
	case d.Delay > 0:
		return "delayed"
	}
	return "allow"
}
