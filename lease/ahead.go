package lease

import (
	"time"

	"github.com/sluicehq/sluice"
)

// Ahead returns how far ahead units of a plan are reserved. It returns 0 if the plan is not [sluice.Plan.Leasable],
// or if so few units pass in that time that reservations would save no calls. If it returns 0, all charges are
// counted strictly.
func Ahead(p *sluice.Plan) time.Duration { return time.Duration(horizon(p)) * time.Microsecond }
