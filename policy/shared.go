package policy

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/spelling"
	"github.com/sluicehq/sluice/policy/internal/fair"
)

// SharedLimit is a rule whose limit is divided among tenants.
type SharedLimit struct {
	Rule  string
	Limit sluice.Limit
	By    []string // the parts that name a tenant
	// Weights are those that tenants can have, the least first: at least that of whoever has no tier
	// in the share.
	Weights []SharedWeight
	// Window is for how long who has asked is active, and Settles after how long at the latest shares
	// have settled: see [Share]. Settles is 0 if the burst is so small that this is not known.
	Window, Settles time.Duration
}

// SharedWeight is a weight in a [SharedLimit].
type SharedWeight struct {
	Weight int64
	Tiers  []string // who have it, in order
	Others bool     // and so do all other tenants
}

// SharedLimits tells of every rule that shares its limit, in the order of the document.
func (p *Policy) SharedLimits() (all []SharedLimit) {
	for i := range p.rules {
		if r := &p.rules[i]; r.sharing != nil {
			all = append(all, r.sharedLimit())
		}
	}
	return all
}

func (r *rule) sharedLimit() SharedLimit {
	l := r.own.limits[0].plan.Limit
	s := SharedLimit{Rule: r.name, Limit: l, By: r.key[r.sharing.owner:].Names(), Weights: r.sharing.byWeight()}
	s.Window = time.Duration(fair.Window(l.Count, l.Period)) * time.Microsecond
	if l.Burst >= fair.Units(l.Count, l.Period)/4 {
		s.Settles = 2 * s.Window
	}
	return s
}

// byWeight returns the weights that tenants can have.
func (f *sharing) byWeight() []SharedWeight {
	tiers := make(map[int64][]string)
	for _, name := range sortedKeys(f.weights) {
		w := f.weights[name]
		tiers[w] = append(tiers[w], name)
	}
	var all []SharedWeight
	for w := int64(1); w <= fair.MaxWeight; w++ {
		if w == 1 || tiers[w] != nil {
			all = append(all, SharedWeight{w, tiers[w], w == 1})
		}
	}
	return all
}

// Whole is the limit without its burst, as in "1000/second".
func (s *SharedLimit) Whole() string {
	l := s.Limit
	l.Burst = 0
	return l.String()
}

// Part says how much of the limit a weight has of so many, as in "83.3/second".
func (s *SharedLimit) Part(weight, of int64) string {
	return rateText(float64(s.Limit.Count) * float64(weight) / float64(of) / s.Limit.Period.Seconds())
}

// rateText writes so many units a second, in the shortest period that has at least one of them, with three
// digits.
func rateText(rate float64) string {
	in, name := rate, "second"
	for _, longer := range []struct {
		name    string
		seconds float64
	}{{"minute", 60}, {"hour", 3600}, {"day", 86400}} {
		if in >= 0.9995 { // which is written as 1
			break
		}
		in, name = rate*longer.seconds, longer.name
	}
	scale := math.Pow10(max(0, 2-int(math.Floor(math.Log10(in)))))
	return strconv.FormatFloat(math.Round(in*scale)/scale, 'f', -1, 64) + "/" + name
}

// sharing warns of shares that give next to nothing to some, or that are slow.
func (w *warner) sharing(r *rule) {
	if r.sharing == nil {
		return
	}
	s := r.sharedLimit()
	units := fair.Units(s.Limit.Count, s.Limit.Period)
	sum := int64(0)
	for _, weight := range s.Weights {
		sum += weight.Weight
	}
	if least := s.Weights[0]; len(s.Weights) > 1 && units*least.Weight < sum {
		w.add(r, "", "bring the weights closer together, or raise the limit",
			"beside one tenant of each other weight, one of weight %d has %s of %v: less than a request in the %v for which shares are divided",
			least.Weight, s.Part(least.Weight, sum), s.Whole(), s.Window)
	}
	if s.Settles == 0 {
		w.add(r, "", "leave the burst out, which makes it as much as a period gives",
			"the burst of %d is less than the limit gives in %v, so shares settle later than in %v", s.Limit.Burst, s.Window/4, 2*s.Window)
	}
	w.weights(r)
}

// weights warns of a weight for a tier that is nobody's, where the document alone says whose a tier is.
func (w *warner) weights(r *rule) {
	p := w.policy
	if p.tierFrom != nil || len(p.subjects.list) == 0 {
		return
	}
	known := slices.Clone(p.subjects.Values())
	if p.tier != "" && !slices.Contains(known, p.tier) {
		known = append(known, p.tier)
	}
	slices.Sort(known)
	for _, name := range sortedKeys(r.sharing.weights) {
		if !slices.Contains(known, name) {
			w.add(r, "", spelling.Suggest(name, known), "the weight of %s is of a tier that nobody has", spelling.Quote(name))
		}
	}
}

// explain says what the tenant has at present of the limit that it shares.
func (a *allocations) explain(_ *charges, i int) string {
	t, _ := a.of(i)
	switch {
	case t == nil:
		return ""
	case t.cap == nil:
		return fmt.Sprintf("weight %d: too many limits are shared at a time to divide this one", t.weight)
	}
	limit := t.rule.sharedLimit()
	whole := limit.Whole()
	p := t.cap.Part(t.key, t.weight, a.asked)
	now := rateText(1e9 / float64(p.Each))
	switch {
	case p.Short:
		return fmt.Sprintf("weight %d of %d that are active, which ask for more than %s: %s at present", t.weight, p.Weights, whole, now)
	case p.Weights == t.weight:
		return fmt.Sprintf("weight %d, and nobody else is active: all of %s", t.weight, whole)
	}
	return fmt.Sprintf("weight %d of %d that are active: what it asks for, since %s is enough for all, and at least %s", t.weight, p.Weights, whole, now)
}
