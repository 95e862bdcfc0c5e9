package storetest

import (
	"testing"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// forgotten records which states have drained since they were last charged. If the clock then steps back, such a
// state may be empty, because the store has forgotten it, or may still have its old contents.
type forgotten struct {
	a, b   TimedStore
	latest int64
	keys   map[stateID]*drain
}

type stateID struct {
	key         string
	fingerprint uint64
}

// drain records when a state becomes empty, and whether it has been empty since its last charge.
type drain struct {
	at      int64
	drained bool
	permits *kernel.Permits // for plans with permits, because receipts do not show when each permit expires; otherwise nil
}

// agree resets a state of a step in both stores if one of them has forgotten the state and was allowed to. It fails
// if the stores differ and neither has forgotten the state.
func (f *forgotten) agree(t testing.TB, s step) {
	t.Helper()
	for _, c := range s.charges {
		d := f.keys[stateID{c.Key, c.Plan.Fingerprint}]
		if d == nil || !d.drained || s.now >= f.latest && d.permits == nil {
			continue
		}
		c.Cost = 0
		a, b := f.one(t, f.a, s.now, c), f.one(t, f.b, s.now, c)
		if a == b {
			continue
		}
		if empty := f.one(t, new(Model), s.now, c); a != empty && b != empty {
			t.Fatalf("the state of %v under %q has drained, and the clock has stepped back to %d: now the state is neither unchanged nor empty\n first %+v\nsecond %+v",
				c.Plan.Limit, c.Key, s.now, a, b)
		}
		c.Cost, c.Until = sluice.All, 0
		f.one(t, f.a, s.now, c)
		f.one(t, f.b, s.now, c)
		if d.permits != nil {
			*d.permits = kernel.Permits{}
		}
	}
}

func (f *forgotten) one(t testing.TB, s TimedStore, now int64, c sluice.Charge) sluice.Receipt {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.TakeAt(t.Context(), now, []sluice.Charge{c}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0]
}

// learn records the results of a step.
func (f *forgotten) learn(s step) {
	f.latest = max(f.latest, s.now)
	admitted := sluice.Admitted(s.charges, s.receipts)
	for i, c := range s.charges {
		id := stateID{c.Key, c.Plan.Fingerprint}
		if c.Plan.Kernel.Permits() {
			f.keys[id] = f.keys[id].step(s.now, c, admitted)
			f.keys[id].drained = s.receipts[i].Used == 0 // Used may be 0 because the clock is too far back
			continue
		}
		d := c.Plan.Decide(c.Cost, s.receipts[i])
		f.keys[id] = &drain{at: s.now + d.ResetAfter.Microseconds()}
	}
	for _, d := range f.keys {
		d.drained = d.drained || d.at <= s.now
	}
}

// step returns the drain of a state with permits after a charge. d is nil before the first charge.
func (d *drain) step(now int64, c sluice.Charge, admitted bool) *drain {
	permits := new(kernel.Permits)
	if d != nil {
		permits = d.permits
	}
	if admitted {
		permits.Step(&c.Plan.Plan, now, c.Permit, c.CostAt(now))
	}
	return &drain{at: permits.EmptyAt(), permits: permits}
}
