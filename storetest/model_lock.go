package storetest

import (
	"math/big"
	"slices"

	"github.com/sluicehq/sluice"
)

// lockAccount keeps the end of the last penalty, the number of penalties in a row, and the time when they are
// forgotten. All three are 0 without a penalty.
type lockAccount struct {
	until, penalties, forgotten int64
}

func newLockTerms(p sluice.Penalty) *terms {
	return &terms{
		meaning: "lock", tick: 1, capacity: 1, penalty: p,
		open: func() account { return new(lockAccount) },
	}
}

// exceeded reports whether a Take is an offence: a charge with the given key that is not owed does not fit its
// limit, and no receipt shows that the Take is a repeat.
func exceeded(charges []sluice.Charge, receipts []sluice.Receipt, key string) bool {
	limits, before := 0, 0
	for i, c := range charges {
		refuses := c.Cost > 0 && !receipts[i].Fits && !c.Owe
		if refuses && c.Plan.Once {
			before++
		} else if refuses && c.Key == key {
			limits++
		}
	}
	return limits > 0 && before == 0
}

// penaltyOf returns the length of the nth penalty in a row, in microseconds: First·Factor^(n-1), at most Most.
func (t *terms) penaltyOf(n int64) int64 {
	length := new(big.Int).Exp(big.NewInt(t.penalty.Factor), big.NewInt(n-1), nil)
	length.Mul(length, big.NewInt(int64(t.penalty.First/1000)))
	most := big.NewInt(int64(t.penalty.Most / 1000))
	return slices.MinFunc([]*big.Int{length, most}, (*big.Int).Cmp).Int64()
}

// offend starts a penalty, which is longer for each earlier penalty that is not yet forgotten. Penalties that no
// longer grow are not counted.
func (a *lockAccount) offend(t *terms, now int64) {
	before := a.at(now).penalties
	a.penalties = before + 1
	if before > 0 && t.penaltyOf(before) == t.penaltyOf(before+1) {
		a.penalties = before
	}
	a.until = now + t.penaltyOf(a.penalties)
	a.forgotten = a.until + int64(t.penalty.Forget/1000)
}

// at returns the account as of the time now.
func (a *lockAccount) at(now int64) lockAccount {
	if now >= a.forgotten {
		return lockAccount{}
	}
	return *a
}

func (a *lockAccount) follow(t *terms, now int64) {
	if a.penalties == 0 || a.idle(t, now) {
		return
	}
	if length := t.penaltyOf(a.penalties); a.until-now > 2*length {
		remembered := a.forgotten - a.until
		a.until = now + length
		a.forgotten = a.until + remembered
	}
}

func (a *lockAccount) fits(_ *terms, now, _ int64) bool { return now >= a.at(now).until }

func (a *lockAccount) add(_ *terms, _, units int64) {
	if units < 0 {
		*a = lockAccount{}
	}
}

func (a *lockAccount) idle(_ *terms, now int64) bool { return now >= a.forgotten }

func (a *lockAccount) fill(_ *terms, now, _ int64, r *sluice.Receipt) {
	l := a.at(now)
	r.Tick, r.Used, r.Prev = l.until, l.penalties, l.forgotten
}
