package lease

import (
	"time"

	"github.com/sluicehq/sluice"
)

// Ahead returns how far ahead units of a plan are reserved. It returns 0 if reserving is not worth it, because few
// units pass in that time, or if the plan is not [sluice.Plan.Leasable]; then all charges are counted strictly.
func Ahead(p *sluice.Plan) time.Duration { return time.Duration(horizon(p)) * time.Microsecond }
