package policy

import (
	"time"

	"github.com/sluicehq/sluice"
)

// derive makes the decision from the answer of the store. A malformed request is denied with Missing set, unless a
// limit denies it already.
func (d *Decision) derive(w *work, err error) {
	missing := d.Missing
	d.Missing = ""
	if w.mode == Peek {
		w.charges.restoreCosts()
	}
	switch {
	case err == nil && w.mode == Peek:
		w.charges.foresee(&w.input)
		d.decide(w)
	case err == nil:
		d.decide(w)
	case missing == "":
		d.withoutStore(w, err)
	}
	if missing != "" && (err != nil || d.Allowed) {
		d.reset()
		d.Missing = missing
	}
}

// decide makes the decision from the receipts.
func (d *Decision) decide(w *work) {
	c := &w.charges
	for _, k := range c.active {
		k.taken(&w.input, c)
	}
	d.Repeated = c.once.repeated
	d.Allowed = sluice.Admitted(c.list, c.receipts)
	d.Now = c.receipts[0].Now
	d.Results = c.results
	for i := range d.Results {
		d.result(w, i, &d.Results[i], &c.receipts[i])
	}
	if w.mode == Charge && !d.Repeated {
		d.keep(w)
	}
}

// result makes the result of limit i.
func (d *Decision) result(w *work, i int, r *Result, receipt *sluice.Receipt) {
	c := &w.charges
	cost := c.list[i].Cost
	if w.mode == Peek {
		if receipt.Fits && !(receipt.Prev > 0 && isQueue(r.Plan)) { // see Turns.Offer
			cost = 0
		}
		r.Owed = r.Plan.Owed(&receipt.Receipt)
	}
	d.Degraded = d.Degraded || receipt.Origin.Degraded()
	r.Plan.DecideInto(cost, receipt, &r.Decision)
	closed := receipt.Origin == sluice.ByOnError && !receipt.Fits
	for _, k := range c.active {
		closed = k.join(c, i, r) || closed
	}
	if closed {
		d.close(r)
		return
	}
	if !d.Allowed || w.mode == GiveBack {
		r.Delay, r.Early = 0, 0 // a denied request has no turn to wait for
	}
	d.weigh(r)
}

// keep records what can be given back later.
func (d *Decision) keep(w *work) {
	if d.Delay > 0 {
		d.wait(w)
	}
	if !d.Allowed {
		return
	}
	if w.policy.settles {
		d.unsettled = w.charges.unsettled(d)
	}
	for _, k := range w.charges.active {
		k.keep(w, d)
	}
}

// withoutStore makes the decision by on_error, because the store returned an error.
func (d *Decision) withoutStore(w *work, err error) {
	c := &w.charges
	d.Allowed, d.Degraded, d.Err, d.Results = true, true, err, c.results
	for i := range d.Results {
		if c.list[i].OnError == sluice.Deny {
			d.close(&d.Results[i])
		} else {
			d.Results[i].Decision = sluice.Decision{Allowed: true, Origin: sluice.ByOnError}
		}
	}
}

// retryUnavailable is the wait before a retry while the store is unavailable.
const retryUnavailable = time.Second

// close denies a result because the store is unavailable.
func (d *Decision) close(r *Result) {
	r.Decision = sluice.Decision{RetryAfter: retryUnavailable, Origin: sluice.ByOnError}
	if !r.Shadow {
		d.Allowed, d.Unavailable, d.Now = false, true, 0
	}
	d.weigh(r)
}

// weigh adds the waits of r to the decision. A shadow adds none.
func (d *Decision) weigh(r *Result) {
	if r.Shadow {
		return
	}
	d.Delay = max(d.Delay, r.Delay)
	if !r.Allowed {
		d.RetryAfter = max(d.RetryAfter, r.RetryAfter)
	}
}
