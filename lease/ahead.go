package lease

import (
	"time"

	"github.com/sluicehq/sluice"
)

// Ahead returns for how long units of a plan are reserved, or 0 where that is not worth it and all is
// counted strictly: where few units pass in that time, or the plan is not [sluice.Plan.Leasable].
func Ahead(p *sluice.Plan) time.Duration { return time.Duration(horizon(p)) * time.Microsecond }
