// Package control has the operations on a running Sluice: on rules, tiers, overrides, subjects and statistics, and
// explanations of decisions. Each operation takes its [Caller], checks the role and the version, handles dry runs,
// and writes the audit log. The admin API sends the results of operations as JSON; the console renders them.
package control

import (
	"context"
	"log/slog"
	"net/http"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/telemetry"
)

// Telemetry has the counts of decisions. A [telemetry.Fleet] implements it.
type Telemetry interface {
	// View returns the present counts. They do not change later.
	View() *telemetry.View
	// Find returns the key of the subject with the given ID, if the subject was known when the latest View was made.
	Find(id string) (key string, found bool)
	// FindRefusals returns the recorded denials of the request with the given ID, from all instances.
	FindRefusals(ctx context.Context, id string) telemetry.FoundRefusals
}

// Config configures a Control. All fields except Database, Telemetry, Recent and DegradedField are required.
type Config struct {
	Engine *policy.Engine
	// Stack has the policy in force as written in its sources. Database is the database of rules; if it is nil, the
	// policy comes only from a file.
	Stack    *source.Stack
	Database *source.Database
	// Telemetry is nil if telemetry is off.
	Telemetry Telemetry
	// Recent is nil if decisions are not recorded.
	Recent *recent.Fleet
	// DegradedField is the gateway's setting of this name. Explained responses depend on it.
	DegradedField bool
	Logger        *slog.Logger
}

// Control has the operations. They fail with a [Problem], or with an error that [AsProblem] converts to one. Do not
// change documents in their results. A Control is safe for concurrent use.
type Control struct {
	engine    *policy.Engine
	policy    *written
	telemetry Telemetry
	recent    *recent.Fleet
	logger    *slog.Logger
	encoder   answer.Encoder
	stats     statsCache
	silences  silences
}

// New returns a Control.
func New(config Config) *Control {
	p := &written{stack: config.Stack, database: config.Database}
	c := &Control{engine: config.Engine, policy: p, telemetry: config.Telemetry, recent: config.Recent, logger: config.Logger}
	c.encoder.DegradedField = config.DegradedField
	return c
}

// logAct logs an act of a caller.
func (c *Control) logAct(who Caller, what string, about ...any) {
	c.logger.Info(what, append([]any{"actor", who.Name, "via", who.Via}, about...)...)
}

// noDatabase returns the problem of an operation that needs a database.
func noDatabase() *Problem {
	return Problemf(http.StatusConflict, "no database to change: start sluice with --rules, or change the policy file")
}
