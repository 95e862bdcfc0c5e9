package policy

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy/internal/parts"
)

// RepeatedWithin is how long the ID of an allowed request is remembered.
const RepeatedWithin = time.Minute

var oncePlan = func() *sluice.Plan {
	p, err := sluice.NewOnce(RepeatedWithin)
	if err != nil {
		panic(err) // the limit is a constant
	}
	return p
}()

// The first byte before the output of appendAsked, which distinguishes requests from settlements.
const (
	askedOnce   = 'q'
	settledOnce = 's'
)

// once is the counter of request IDs: a request that is repeated with the same ID is charged only once.
type once struct {
	noCounter
	engine   *Engine
	at       int    // index of the ID's charge; 0: none
	text     []byte // the charge's key is a hash of this text
	keys     parts.Keys
	repeated bool // the charge of the ID did not fit, because the ID is known
}

func (o *once) reset() {
	o.at, o.repeated = 0, false
	o.keys.Reset()
}

func (o *once) beside(in *input, c *charges) {
	o.at = len(c.list)
	charge := o.chargeOf(in, c, 1)
	if c.list = append(c.list, charge); in.mode != GiveBack {
		return
	}
	// Forget the ID of the original request, so that it is charged again after this refund.
	forgotten := o.chargeOf(in, c, -1)
	forgotten.Cost = -1
	c.list = append(c.list, forgotten)
}

// chargeOf returns the charge of the request's ID, with the costs of the request multiplied by times.
func (o *once) chargeOf(in *input, c *charges, times int64) sluice.Charge {
	o.text = appendAsked(append(o.text[:0], askedOnce), in.request.ID, c.list[:o.at], times)
	return onceCharge(&o.keys, o.text, c.list[0].Key)
}

func (o *once) preview(_ *input, c *charges) {
	if o.at > 0 {
		c.wouldFit(o.at)
	}
}

// repeat allows a request that was allowed before, unless it is a preview. If its turn in a queue has passed, it takes
// another one.
func (o *once) repeat(ctx context.Context, w *work) error {
	c := &w.charges
	if w.mode == Peek || !o.repeats(c) {
		return nil
	}
	o.repeated = true
	if allowAgain(c.receipts); w.mode != Charge {
		return nil
	}
	return o.engine.again(ctx, c.list[o.at].Key, c.list[:len(c.results)], c.receipts)
}

// taken does for a preview what repeat does for a Take.
func (o *once) taken(in *input, c *charges) {
	if in.mode != Peek || !o.repeats(c) {
		return
	}
	o.repeated = true
	q := o.engine.awaited.find(c.list[o.at].Key)
	for i := range c.list {
		charge, r := &c.list[i], &c.receipts[i]
		if r.Origin != sluice.ByOnError && (charge.Cost < 1 || !isQueue(charge.Plan) || q.has(charge, r)) {
			r.Fits = true
		}
	}
}

// repeats reports whether the charge of the ID did not fit, because the ID is known.
func (o *once) repeats(c *charges) bool {
	return o.at > 0 && !c.receipts[o.at].Fits && c.receipts[o.at].Origin != sluice.ByOnError
}

// onceCharge returns the charge of an ID that counts once. Its key has "!/" after a hash tag. No key of a rule, of a
// caller's subject or of a limiter has this form. The hash tag is the tag of the key beside or, if that has none, the
// whole key beside, so that a cluster takes both charges in one step.
func onceCharge(k *parts.Keys, asked []byte, beside string) sluice.Charge {
	sum := sha256.Sum256(asked)
	var text [24]byte
	key := base64.RawURLEncoding.AppendEncode(append(text[:0], "!/"...), sum[:16])
	return sluice.Charge{Key: k.Beside(beside, key), Plan: oncePlan, Cost: 1, OnError: sluice.Local}
}

// appendAsked appends the identity of a request: its ID, and its charges, with their costs multiplied by times.
func appendAsked(dst []byte, id string, charges []sluice.Charge, times int64) []byte {
	dst = appendText(dst, id)
	for i := range charges {
		c := &charges[i]
		dst = appendText(dst, c.Key)
		dst = binary.LittleEndian.AppendUint64(dst, c.Plan.Fingerprint)
		cost := times * c.Cost
		if isTurn(c.Plan) { // the time that a tenant is charged can differ in a repetition
			cost = 0
		}
		dst = binary.LittleEndian.AppendUint64(dst, uint64(cost))
		dst = appendValue(dst, c) // a request with another value is a different request
	}
	return dst
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// allowAgain makes all receipts fit, because the charges of a repetition have been counted already.
func allowAgain(receipts []sluice.Receipt) {
	for i := range receipts {
		if r := &receipts[i]; r.Origin != sluice.ByOnError {
			r.Fits = true
		}
	}
}
