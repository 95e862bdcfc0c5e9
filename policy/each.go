package policy

import (
	"context"
	"slices"

	"github.com/sluicehq/sluice"
)

// DecideEach decides about independent requests, each as [Engine.DecideInto] would. Requests that share a count are
// decided in the order of the list. There is one exception: if a request gets a turn that an earlier client has given
// up, and another limit then denies the request, later requests of the list cannot get this turn. It is free again
// after the list. On a cluster, package redisstore makes another exception: see its Store.TakeEach. If the store
// supports it (see [sluice.TakeEach]), one call takes the charges of the whole list. Some requests need a further call,
// such as those with a Body and no ID. ds must be as long as reqs.
func (e *Engine) DecideEach(ctx context.Context, reqs []*Request, ds []Decision) {
	switch len(reqs) {
	case 0:
		return
	case 1:
		e.DecideInto(ctx, reqs[0], &ds[0])
		return
	}
	began := e.began()
	b := e.lists.Get().(*each)
	b.begin(e, len(reqs))
	for i, r := range reqs {
		d := &ds[i]
		d.reset()
		if b.plain(r) {
			b.charge(r, d)
			continue
		}
		w := e.begin(r, d)
		b.all = append(b.all, made{asking{w, d}, r, 0})
		// prepare may ask the store before a body is read (see looksFirst), and for permits that earlier requests
		// of the list take. So the earlier requests have to be charged first.
		if r.Body != nil && r.ID == "" || b.underWay && !r.Ends {
			b.take(ctx, e)
		}
		if e.prepare(ctx, w, d) {
			c := &w.charges
			b.underWay = b.underWay || c.inFlight() && r.Ends
			c.complete(&w.input)
			b.ask(asking{w, d}, c.list, c.receipts)
			if r.ID != "" && slices.ContainsFunc(c.list, func(c sluice.Charge) bool { return isQueue(c.Plan) }) {
				b.take(ctx, e) // a repeated request may take another turn, which must come before the turns of later requests
			}
		}
	}
	b.take(ctx, e)
	took := e.took(began)
	for i := range b.all {
		if a := &b.all[i]; a.w != nil {
			e.finish(ctx, a.w, a.d, took)
		} else {
			e.observe(ctx, b.remembered(a), a.d, took)
		}
	}
	b.end()
	e.lists.Put(b)
}

// each is the working memory of DecideEach.
type each struct {
	all      []made   // decisions for observers, and decisions with their own work
	asking   []asking // decisions that wait for the store
	underWay bool     // some decisions in asking wait for a permit in flight
	calls    []sluice.TakeCall

	// All plain requests share one work, so that a long list stays in the processor's caches.
	shared   *work
	anyPlain bool
	watched  bool
	charges  []sluice.Charge
	receipts []sluice.Receipt
}

type asking struct {
	w *work // nil: the shared work
	d *Decision
}

// made is a decision that observers get after all decisions have been made.
type made struct {
	asking
	request *Request
	charge  int // index in each.charges, for a plain request
}

func (b *each) begin(e *Engine, n int) {
	b.shared.policy, b.watched, b.anyPlain = e.current(), e.watched(), len(e.blocksNow()) == 0
	b.charges, b.receipts = slices.Grow(b.charges[:0], n), slices.Grow(b.receipts[:0], n)
}

// plain reports whether a request needs only a single charge, under a limit that the caller supplies.
func (b *each) plain(r *Request) bool {
	return b.anyPlain && r.Subject != nil && r.Subject.rule.index == adhoc && r.Mode == Charge && r.ID == ""
}

// charge makes the charge of a plain request.
func (b *each) charge(r *Request, d *Decision) {
	n, c := len(b.charges), &b.shared.charges
	b.about(r)
	c.list, c.results = b.charges[n:n:n+1], d.Results
	c.add(&b.shared.input, &b.shared.subjects.list[0])
	d.Results = c.results
	b.charges, b.receipts = b.charges[:n+1], b.receipts[:n+1]
	b.ask(asking{nil, d}, b.charges[n:], b.receipts[n:])
	if b.watched {
		b.all = append(b.all, made{asking{nil, d}, r, n})
	}
}

// about sets up the shared work for a plain request.
func (b *each) about(r *Request) {
	rule, w := r.Subject.rule, b.shared
	w.request, w.charges.subjects = r, w.charges.subjects[:0]
	w.subjects.list = append(w.subjects.list[:0], subject{rule: rule, by: &rule.own, key: r.Subject.charged, owner: r.Subject.charged, shadow: w.policy.isShadow(rule)})
}

// remembered restores the shared work of a plain request, with its charge.
func (b *each) remembered(a *made) *work {
	w := b.shared
	b.about(a.request)
	w.charges.list, w.charges.results, w.charges.subjects = b.charges[a.charge:a.charge+1], a.d.Results, append(w.charges.subjects, &w.subjects.list[0])
	return w
}

func (b *each) ask(a asking, charges []sluice.Charge, receipts []sluice.Receipt) {
	b.calls = append(b.calls, sluice.TakeCall{Charges: charges, Receipts: receipts})
	b.asking = append(b.asking, a)
}

// take asks the store, and makes the decisions that wait for it.
func (b *each) take(ctx context.Context, e *Engine) {
	if len(b.calls) == 0 {
		return
	}
	e.turns.TakeEach(ctx, e.store, b.calls)
	for i, a := range b.asking {
		c := &b.calls[i]
		if a.w == nil {
			a.w = b.shared
			a.w.charges.list, a.w.charges.receipts, a.w.charges.results = c.Charges, c.Receipts, a.d.Results
		}
		a.d.derive(a.w, e.taken(ctx, a.w, c.Err))
	}
	clear(b.calls)
	clear(b.asking)
	b.underWay = false
	b.calls, b.asking = b.calls[:0], b.asking[:0]
}

// end drops all references to the requests and decisions.
func (b *each) end() {
	clear(b.all)
	b.all = b.all[:0]
	clear(b.charges) // their keys belong to callers
	w := b.shared
	w.input, w.seen = input{}, Observation{}
	w.charges.list, w.charges.receipts, w.charges.results = nil, nil, nil
	clear(w.subjects.list)
}
