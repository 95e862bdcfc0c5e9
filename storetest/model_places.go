package storetest

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/kernel"
)

// placesAccount knows who has taken a place in flight, and when.
type placesAccount struct {
	taken []taking
	asked uint64 // the number that the charge at hand is about
}

type taking struct {
	number uint64
	at     int64
}

func newPlacesTerms(p *sluice.Plan) *terms {
	return &terms{
		meaning: "places in flight", tick: 1, capacity: p.Capacity,
		open: func() account { return new(placesAccount) },
	}
}

// at returns what counts at now: whoever has taken a place in the last ten seconds, or, if the clock
// has stepped back since, at most ten seconds ahead of it.
func (a *placesAccount) at(now int64) (count []taking) {
	const lasts = int64(kernel.PermitLasts / 1000)
	for _, t := range a.taken {
		if age := now - t.at; -lasts <= age && age < lasts {
			count = append(count, t)
		}
	}
	return count
}

func (a *placesAccount) follow(*terms, int64) {}

func (a *placesAccount) fits(t *terms, now, units int64) bool {
	count := a.at(now)
	for _, t := range count {
		if t.number == a.asked {
			return units == 1
		}
	}
	return units == 1 && int64(len(count)) < t.capacity
}

func (a *placesAccount) add(_ *terms, now, units int64) {
	count := a.at(now)
	a.taken = nil
	if units == sluice.All {
		return
	}
	for _, t := range count {
		if t.number != a.asked {
			a.taken = append(a.taken, t)
		}
	}
	if units > 0 {
		a.taken = append(a.taken, taking{a.asked, now})
	}
}

func (a *placesAccount) idle(_ *terms, now int64) bool { return len(a.at(now)) == 0 }

func (a *placesAccount) fill(_ *terms, now, _ int64, r *sluice.Receipt) {
	r.Used = int64(len(a.at(now)))
}

// decide is [Model.Decide]: nobody knows when a place is given back.
func (a *placesAccount) decide(t *terms, c sluice.Charge, r sluice.Receipt) sluice.Decision {
	d := sluice.Decision{Allowed: r.Fits, Now: r.Now, Origin: r.Origin}
	d.Remaining = max(0, t.capacity-int64(len(a.at(r.Now))))
	switch {
	case r.Fits:
	case c.Cost > 1: // there is no place that costs so much
		d.RetryAfter = sluice.Never
	default:
		d.RetryAfter = time.Second
	}
	return d
}
