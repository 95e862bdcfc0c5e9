package resp

import (
	"sync"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// rate is a limit as CL.THROTTLE has it.
type rate struct{ burst, count, period int64 }

// limit is a rate that is ready to be asked about.
type limit struct {
	brought *policy.Subject // of no key, which is made that of others
	begins  [2]string       // an answer: of who may pass, and of who may not
}

// maxLimits is the most limits that are remembered. Programs have a few; whoever makes them up has
// each compiled.
const maxLimits = 1024

// limits has those that were asked for.
type limits struct {
	engine *policy.Engine

	mu  sync.RWMutex
	all map[rate]*limit
}

// of returns the limit of a rate.
func (ls *limits) of(r rate) (*limit, error) {
	ls.mu.RLock()
	known := ls.all[r]
	ls.mu.RUnlock()
	if known != nil {
		return known, nil
	}
	plan, err := sluice.NewPlan(sluice.Limit{Count: r.count, Period: time.Duration(r.period) * time.Second, Burst: r.burst + 1})
	if err != nil {
		return nil, err
	}
	l := &limit{brought: ls.engine.Adhoc(throttleName, "", plan, sluice.Allow)}
	for limited := range l.begins {
		var begin reply
		begin.array(5)
		begin.integer(int64(limited))
		begin.integer(plan.Capacity)
		l.begins[limited] = string(begin.text)
	}
	ls.keep(r, l)
	return l, nil
}

func (ls *limits) keep(r rate, l *limit) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.all == nil || len(ls.all) >= maxLimits {
		ls.all = make(map[rate]*limit) // those in use come back
	}
	ls.all[r] = l
}
