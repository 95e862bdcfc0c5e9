package resp

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// rate is a limit as CL.THROTTLE has it.
type rate struct{ burst, count, period int64 }

// limit is a rate that is ready to be asked about.
type limit struct {
	brought  *policy.Subject // of no key, which is made that of others
	capacity int64
}

// newLimit compiles a rate.
func (s *Server) newLimit(r rate) (*limit, error) {
	plan, err := sluice.NewPlan(sluice.Limit{Count: r.count, Period: time.Duration(r.period) * time.Second, Burst: r.burst + 1})
	if err != nil {
		return nil, err
	}
	return &limit{s.Engine.Adhoc(throttleName, "", plan, sluice.Allow), plan.Capacity}, nil
}
