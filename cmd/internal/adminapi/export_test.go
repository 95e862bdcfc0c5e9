package adminapi

import (
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Route is an operation, such as "GET /v1/rules", with the role that it requires.
type Route struct {
	Name string
	Role source.Role
}

// Routes returns all operations.
func Routes() (all []Route) {
	for _, r := range routes() {
		all = append(all, Route{r.method + " " + r.path, r.role})
	}
	return all
}

// SetBodyTimeout sets how long a body may take to arrive, and returns a function that restores the old value.
func SetBodyTimeout(d time.Duration) func() {
	before := bodyTimeout
	bodyTimeout = d
	return func() { bodyTimeout = before }
}
