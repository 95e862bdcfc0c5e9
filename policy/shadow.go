package policy

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/printable"
	"github.com/sluicehq/sluice/internal/spelling"
)

// ShadowAlways, as the Shadow of a [Document], puts the whole policy into shadow mode, in which it denies nothing,
// until the setting is removed.
const ShadowAlways = "always"

// ShadowAll makes the engine treat every policy as a shadow: see [Policy.Shadowed]. Nothing is denied any more.
// Call it before the first decision.
func (e *Engine) ShadowAll() {
	e.shadow = true
	e.Swap(e.Policy())
}

// Shadowed returns a policy that counts and reports as p does, but denies nothing: every rule, including rules that
// block, is a shadow with all of its overrides, and so are the limits of [Engine.Adhoc]. Malformed requests are not
// denied either: see [Observation.Pardoned]. Exemptions of p stay.
func (p *Policy) Shadowed() *Policy {
	if p.watchOnly {
		return p
	}
	next := *p
	next.watchOnly, next.original = true, p
	next.rules = slices.Clone(p.rules)
	for i := range next.rules {
		r := &next.rules[i]
		r.shadow, r.rollout = !r.exempt, 0
	}
	next.index = newIndex(next.rules, p.ignoreCase)
	return &next
}

// WatchOnly reports whether the policy denies nothing: see [Policy.Shadowed].
func (p *Policy) WatchOnly() bool { return p.watchOnly }

// ShadowUntil returns the end of the document's Shadow, and whether the document sets it. An [Engine] applies it.
// The time is zero for a shadow without an end. The end may have passed.
func (p *Policy) ShadowUntil() (until time.Time, set bool) {
	switch p.shadowEnds {
	case 0:
		return until, false
	case never:
		return until, true
	}
	return time.UnixMicro(p.shadowEnds).UTC(), true
}

// never is the end of a shadow without an end.
const never = math.MaxInt64

// shadowEnds reads the end of the document's shadow, in microseconds since the Unix epoch; 0 means no shadow.
func (c *compiler) shadowEnds(text string) int64 {
	switch text {
	case "":
		return 0
	case ShadowAlways:
		return never
	}
	t, err := ParseUntil(text)
	if err != nil {
		c.fail("shadow", untilHint+", or \"always\"", "shadow is %s, which is not a time", spelling.Quote(text))
		return 0
	}
	return max(1, t.UnixMicro())
}

// LongerShadow returns whichever of two values of Shadow in a [Document] ends later. A value that cannot be parsed
// takes precedence over a time, so that Compile reports it.
func LongerShadow(a, b string) string {
	switch {
	case b == "" || a == ShadowAlways:
		return a
	case a == "" || b == ShadowAlways:
		return b
	}
	endsA, errA := ParseUntil(a)
	endsB, errB := ParseUntil(b)
	if errA == nil && (errB != nil || endsB.After(endsA)) {
		return b
	}
	return a
}

// effective returns the form in which p is in force: a shadow after ShadowAll, and until the end of its own shadow.
func (e *Engine) effective(p *Policy) *Policy {
	if e.shadow || p.shadowEnds > time.Now().UnixMicro() {
		return p.Shadowed()
	}
	return p
}

// endShadow puts the original policy of a shadow into force if the shadow has ended, and returns the policy in force.
func (e *Engine) endShadow(p *Policy) *Policy {
	ends := p.shadowEnds != never && p.shadowEnds != 0
	if ends && !e.shadow && p.original != nil && p.shadowEnds <= time.Now().UnixMicro() {
		e.policy.CompareAndSwap(p, p.original)
		return e.policy.Load()
	}
	return p
}

// current returns the policy in force.
func (e *Engine) current() *Policy {
	p := e.policy.Load()
	if p.watchOnly {
		return e.endShadow(p)
	}
	return p
}

// isShadow reports whether a rule is a shadow. A limit that a caller supplies is a shadow if the whole policy is one.
// Such a limit belongs to no policy, and may outlive p.
func (p *Policy) isShadow(r *rule) bool { return r.shadow || r.index == adhoc && p.watchOnly }

// everybody is the rollout percentage of 100 %, in hundredths of a percent.
const everybody = 100_00

// enforce reads the rollout percentage of a rule; 0 means all subjects.
func (c *compiler) enforce(r *Rule) uint16 {
	if r.Enforce == "" {
		return 0
	}
	const hint = `write for example "10%"`
	number, isPercent := strings.CutSuffix(r.Enforce, "%")
	share, ok := hundredths(number)
	switch {
	case !isPercent || !ok:
		c.fail("enforce", hint, "enforce is %.20q, which is not a percentage with at most two decimals", r.Enforce)
		return 0
	case share == 0:
		c.fail("enforce", "write \"shadow: true\" to deny nothing", "enforce must be above 0 %%")
	case share > everybody:
		c.fail("enforce", hint, "enforce must be at most 100 %%")
		return 0
	}
	switch {
	case r.Shadow:
		c.fail("enforce", "remove one of them", "a rule in shadow mode cannot have \"enforce\"")
	case len(r.Key)+len(r.Share.By) == 0 && !r.InFlight.Auto: // the rollout of an automatic limit selects clients
		c.fail("enforce", "give it a key, or remove \"enforce\"", "a rule without a key has no subjects to choose from")
	}
	return uint16(share % everybody)
}

// hundredths reads a number such as 10, 0.5 or 12.25, in hundredths. A number with more than three digits before the
// point is invalid.
func hundredths(s string) (n int, ok bool) {
	whole, part, dot := strings.Cut(s, ".")
	if !printable.Digits(whole) || len(whole) > 3 || dot && !printable.Digits(part) || len(part) > 2 {
		return 0, false
	}
	n, err := strconv.Atoi(whole + (part + "00")[:2])
	return n, err == nil
}

// shareText formats a rollout percentage, as in "12.5 %".
func shareText(share uint16) string {
	s := strconv.Itoa(int(share / 100))
	if part := share % 100; part > 0 {
		s += strings.TrimSuffix("."+strconv.Itoa(int(part) + 100)[1:], "0")
	}
	return s + " %"
}

// isPartial reports whether the rule is enforced for a percentage of its subjects, and is a shadow for the others.
func (r *rule) isPartial() bool { return r.rollout > 0 }

// isLenient reports whether the rule allows malformed requests. A rule with a rollout percentage does, because a
// request without a part of the key has no subject that could be selected.
func (r *rule) isLenient() bool { return r.shadow || r.isPartial() }

// isShadowFor reports whether the rule is a shadow for a subject. The parameter is the subject's key without a hash tag
// or, for an automatic limit, the address of the client. The result is the same on every instance. A rule that is
// enforced for a subject at one percentage is enforced for it at every larger one.
func (r *rule) isShadowFor(key []byte) bool {
	if !r.isPartial() {
		return r.shadow
	}
	sum := sha256.Sum256(key)
	at, _ := bits.Mul64(binary.BigEndian.Uint64(sum[:]), everybody)
	return uint16(at) >= r.rollout
}

// whyPartial describes the subjects for which the rule is enforced.
func (r *rule) whyPartial(watched bool) string {
	s := "enforced for " + shareText(r.rollout) + " of subjects, "
	if watched {
		return s + "but not for this one"
	}
	return s + "including this one"
}

// onlyWatched returns the reason why a rule that would deny the request does not deny it.
func (r *rule) onlyWatched() string {
	if r.isPartial() {
		return " (shadow)"
	}
	return " (shadow: not enforced)"
}

// Over returns the names of the rules with "over: mark" that let the request pass although it does not fit, in the
// order of the document.
func (d *Decision) Over() (rules []string) {
	for i := range d.Results {
		if r := &d.Results[i]; r.Over() && !slices.Contains(rules, r.Rule) {
			rules = append(rules, r.Rule)
		}
	}
	return rules
}

// Over reports whether the request does not fit, and passes with a mark.
func (r *Result) Over() bool { return r.Marks && !r.Allowed }

// OverField is the canonical name of the header field that reports [Decision.Over] to the upstream.
const OverField = "Sluice-Over"

// Marks reports whether a rule has "over: mark".
func (p *Policy) Marks() bool { return p.marks }

// neverRefuses reports whether the limits of the rule never deny a request.
func (r *rule) neverRefuses() bool { return r.shadow || r.marks }

// over compiles what happens to requests that do not fit, and reports whether they are marked.
func (c *compiler) over(r *Rule, out *rule) (marks bool) {
	marks = c.choice("over", r.Over, []string{"refuse", "mark"}) > 0
	if marks && out.algorithm == sluice.LeakyBucket {
		c.fail("over", "choose another algorithm, or remove \"over\"", "a leaky_bucket delays requests, and cannot mark them")
	}
	return marks
}
