package policy

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/policy/internal/handover"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// inFlight compiles the limit of a rule that counts requests under way.
func (c *compiler) inFlight(r *Rule, out *rule) {
	c.without([]setting{
		{"limit", r.Limit != ""}, {"limits", len(r.Limits) > 0}, {"algorithm", r.Algorithm != ""},
		{"cost", !r.Cost.IsZero()}, {"count", !r.Count.isZero()}, {"penalty", r.Penalty != Penalty{}},
	}, "use a second rule with a limit for that", "a rule with in_flight counts requests under way, and cannot have %s")
	out.inFlight = true
	out.own = resolved{limits: c.permits("in_flight", r.InFlight.Most, out), from: "rule", source: r.Source}
}

// permits compiles the number of permits of a rule. It returns nil if the number is invalid.
func (c *compiler) permits(field string, n int64, r *rule) []limit {
	key := limitsKey{r.index, strconv.FormatInt(n, 10)}
	if known := c.limitSets[key]; known != nil {
		return known
	}
	plan, err := sluice.NewInFlight(n)
	if err != nil {
		c.fail(field, "use a number from 1 to 65536", "in_flight is %d", n)
		return nil
	}
	all := []limit{{plan: plan}}
	c.limitSets[key] = all
	return all
}

// tierPermits compiles the number of permits in the text of a tier's limits. It returns nil if the text is invalid.
func (c *compiler) tierPermits(field string, texts []string, r *rule) []limit {
	text := strings.Join(texts, ", ")
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		c.fail(field, "write the number of permits, as in \"pro: 50\"", "%s is not a number: tiers of a rule with in_flight have a number of permits", spelling.Quote(text))
		return nil
	}
	return c.permits(field, n, r)
}

// InFlight returns the names of the rules that count requests under way, in the order of the document.
func (p *Policy) InFlight() (names []string) {
	for i := range p.rules {
		if p.rules[i].inFlight {
			names = append(names, p.rules[i].name)
		}
	}
	return names
}

// InFlight reports whether the subject's rule counts requests under way. If so, the subject can be reset, but units
// cannot be given back.
func (s *Subject) InFlight() bool { return s.rule.inFlight }

// Held reports whether the request holds a permit of a rule with in_flight: see [Engine.Release].
//
// A permit of an automatic limit is held until the head of the response: see [Engine.Answered].
func (d *Decision) Held() bool { return len(d.held) > 0 || d.load.Pending() }

// HeldToEnd reports whether the request holds a permit of a rule with in_flight until the request ends.
func (d *Decision) HeldToEnd() bool { return len(d.held) > 0 }

// releaseTimeout bounds the time of a release, for a store without a deadline of its own.
const releaseTimeout = time.Second

// Release ends a request, and releases the permits in flight that it has held since its decision. All copies of the
// decision share the permits, which are released only once. Release works even if the context has ended. If the store
// does not answer in time, Release retries in the background, and a permit expires after [kernel.PermitLasts] at the
// latest.
func (e *Engine) Release(ctx context.Context, d Decision) {
	e.ended(&d)
	e.loads.Release(d.load)
	if len(d.held) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = e.holder.Release(ctx, d.held...) // permits that cannot be released now are released later
}

// ReleaseAll releases the permits in flight of all requests under way, except for permits of automatic limits. Call it
// when the process ends and has cut off its requests.
func (e *Engine) ReleaseAll(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
	defer cancel()
	_ = e.holder.ReleaseAll(ctx) // permits that cannot be released expire
}

// permits is the counter of requests in flight.
type permits struct {
	noCounter
	holder    *sluice.Holder
	malformed bool // the request is malformed, and takes no permit
}

// charge sets the Permit of the last charge in c, if the request takes one: its Mode is Charge, it is not malformed,
// and the integration knows when it ends.
func (p *permits) charge(in *input, c *charges, _ *subject, _ int) {
	switch last := len(c.list) - 1; {
	case in.mode == GiveBack: // a refund cannot free a permit, because its number is unknown
		c.results[last].Cost = 0
	case in.mode == Charge && in.request.Ends && !p.malformed:
		c.list[last].Permit = sluice.NewPermit()
	}
}

// beside sets the cost of charges without a permit to 0, so that they only peek. A preview sets all costs to 0
// itself.
func (p *permits) beside(in *input, c *charges) {
	if in.mode == Peek {
		return
	}
	for i := range c.results {
		if o := &c.list[i]; takesNoPermit(o) {
			o.Cost = 0
		}
	}
}

// takesNoPermit reports whether a charge of a rule with in_flight only peeks.
func takesNoPermit(c *sluice.Charge) bool { return c.Plan.Kernel == kernel.InFlight && c.Permit == 0 }

// keep starts to renew the permits that were taken. A decision by on_error has taken no permits.
func (p *permits) keep(w *work, d *Decision) {
	if d.held != nil {
		return // the permits are held already
	}
	for i := range w.charges.results {
		c, r := &w.charges.list[i], &w.charges.receipts[i]
		if c.Plan.Kernel == kernel.InFlight && c.Permit != 0 && r.Fits && r.Origin != sluice.ByOnError {
			d.held = append(d.held, p.holder.Hold(*c))
		}
	}
}

// merge makes the parts of a request share a permit.
func (p *permits) merge(_ *together, sum, c *sluice.Charge) bool {
	if c.Plan.Kernel != kernel.InFlight {
		return false
	}
	if sum.Permit == 0 {
		sum.Permit, sum.Cost = c.Permit, c.Cost
	} else {
		c.Permit = 0
	}
	return true
}

// giveBackUnsure gives back permits that the store may have counted although it did not answer. Otherwise clients
// that leave before the answer could use up the permits of others.
func (p *permits) giveBackUnsure(c *charges, d *Decision) {
	for i := range c.results {
		o := &c.list[i]
		if o.Plan.Kernel == kernel.InFlight && o.Permit != 0 && (d.Err != nil || c.receipts[i].Origin == sluice.ByOnError) {
			p.holder.GiveBack(*o)
		}
	}
}

// inFlight reports whether a rule with in_flight counts the request.
func (c *charges) inFlight() bool { return c.using&(1<<countsInFlight) != 0 }

// ErrNoPlace is returned for a text that [Engine.Place] did not return.
var ErrNoPlace = errors.New("policy: not a text that Engine.Place has returned")

// Place hands the permits of a request over to a caller in another process, which then reports the end of the request.
// It returns a text that names the permits, and this process stops renewing them. They expire after
// [kernel.PermitLasts], unless [Engine.HoldPlace] is called in time, on any instance. If the request is
// [Decision.Queued], the text also names its turn; only this engine can give the turn to another request. The text is
// empty if the request has neither permits nor a turn. The caller can read the keys of the request in the text.
func (e *Engine) Place(d Decision) string {
	e.ended(&d) // only the other process knows when the request ends
	text := e.placeInFlight(d)
	if d.queued != nil {
		text += turnMark + e.awaited.number(d.queued)
	}
	return text
}

// turnMark separates the permits from the number of a turn in a text of Place.
const turnMark = "."

// cutTurn splits a text of Place into the permits and the number of a turn.
func cutTurn(place string) (inFlight, turn string, err error) {
	inFlight, turn, queued := strings.Cut(place, turnMark)
	if !queued {
		return place, "", nil
	}
	if _, err := strconv.ParseUint(turn, turnBase, 64); err != nil {
		return "", "", ErrNoPlace
	}
	return inFlight, turn, nil
}

func (e *Engine) placeInFlight(d Decision) string {
	if len(d.held) == 0 {
		return ""
	}
	permits := make([]handover.Permit, len(d.held))
	for i, hold := range d.held {
		c := hold.Leave()
		permits[i] = handover.Permit{Key: c.Key, Number: c.Permit, Of: uint64(c.Plan.Capacity)}
	}
	return handover.Text(permits)
}

// HoldPlace renews the permits of a request. The parameter place is the text that [Engine.Place] returned. After the
// renewal, the permits expire after another [kernel.PermitLasts]. HoldPlace reports whether the request still has all
// of them. Expired permits are taken again, unless other requests have taken them. Call HoldPlace well before the
// permits expire. Permits of rules that no longer count requests in flight are left out.
func (e *Engine) HoldPlace(ctx context.Context, place string) (held bool, err error) {
	place, turn, err := cutTurn(place)
	if err != nil || place == "" && turn != "" {
		return err == nil, err
	}
	receipts, err := e.takePermits(ctx, place, 1)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(receipts, func(r sluice.Receipt) bool { return !r.Fits }), nil
}

// ReleasePlace ends a request, like [Engine.Release]. The parameter place is the text that [Engine.Place] returned. If
// this engine gave the request a turn that has yet to come, ReleasePlace gives the turn up: see [Engine.LeaveQueue].
func (e *Engine) ReleasePlace(ctx context.Context, place string) error {
	place, turn, err := cutTurn(place)
	if err != nil {
		return err
	}
	if turn != "" {
		if q := e.awaited.find(turn); q != nil {
			e.refund(ctx, q)
			e.awaited.forget(turn)
		}
		if place == "" {
			return nil
		}
	}
	_, err = e.takePermits(ctx, place, -1)
	return err
}

func (e *Engine) takePermits(ctx context.Context, place string, cost int64) ([]sluice.Receipt, error) {
	charges, err := e.current().heldCharges(place, cost)
	if err != nil || len(charges) == 0 {
		return nil, err
	}
	receipts := make([]sluice.Receipt, len(charges))
	if err := e.store.Take(ctx, charges, receipts); err != nil {
		return nil, err
	}
	for i := range receipts {
		if receipts[i].Origin == sluice.ByOnError {
			return nil, ErrStoreUnavailable
		}
	}
	return receipts, nil
}

// heldCharges returns charges for the permits that a text names, with the limits under which they were taken. All
// charges are for rules of the policy, so that a forged text cannot charge anything else.
func (p *Policy) heldCharges(place string, cost int64) (charges []sluice.Charge, err error) {
	permits, ok := handover.Parse(place)
	if !ok {
		return nil, ErrNoPlace
	}
	for _, permit := range permits {
		plan, err := sluice.NewInFlight(int64(min(permit.Of, 1<<32)))
		if err != nil {
			return nil, ErrNoPlace
		}
		name, _ := parts.CutKey(permit.Key)
		if i, known := p.byName[name]; known && p.rules[i].inFlight {
			charges = append(charges, sluice.Charge{Key: permit.Key, Plan: plan, Cost: cost, Shadow: true, OnError: p.rules[i].onError, Permit: permit.Number})
		}
	}
	return charges, nil
}
