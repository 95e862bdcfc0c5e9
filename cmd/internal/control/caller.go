package control

import (
	"net/http"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Caller is a person or a program that calls an operation. Name is its name in the audit log.
type Caller struct {
	Name string
	Role source.Role
	Via  string // "admin API" or "console", for the log
}

// Needs returns a [Problem] unless the caller has at least the given role.
func (who Caller) Needs(role source.Role) error {
	if !who.Role.May(role) {
		return Problemf(http.StatusForbidden, "%s has the role %s, but this requires the role %s", who.Name, who.Role, role)
	}
	return nil
}
