package resp

import (
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/policy"
)

// rate is the limit that the arguments of CL.THROTTLE describe.
type rate struct{ burst, count, period int64 }

// limit is a compiled rate.
type limit struct {
	brought  *policy.Subject // a subject without a key, from which the subjects with keys are made
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
