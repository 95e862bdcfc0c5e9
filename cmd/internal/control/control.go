// Package control has the operations on a running Sluice: on rules, tiers, overrides, subjects, statistics,
// and what would be decided about a request. Each takes its [Caller], and checks role, dry run and version,
// and writes the audit log; no package above does. The types that operations return are the JSON of the
// admin API. The admin API and the console are above it; packages source, policy and telemetry are below.
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

// Telemetry is what was counted of decisions, such as a [telemetry.Fleet].
type Telemetry interface {
	// View returns what was counted until now, which is not changed later.
	View() *telemetry.View
	// Find returns the key of a subject by its ID in a View.
	Find(id string) (key string, found bool)
	// FindRefusals returns the refusals of a request that any instance keeps.
	FindRefusals(ctx context.Context, id string) telemetry.FoundRefusals
}

// Config is what a Control is over. All but Database, Telemetry, Recent and DegradedField are needed.
type Config struct {
	Engine *policy.Engine
	// Stack has the policy in force as it is written, and Database changes it. Nil: the policy is that of a file.
	Stack    *source.Stack
	Database *source.Database
	// Telemetry is nil if nothing is counted.
	Telemetry Telemetry
	// Recent is nil if nothing is kept of decisions.
	Recent *recent.Fleet
	// DegradedField is that of the gateway, for the explained responses.
	DegradedField bool
	Logger        *slog.Logger
}

// Control has the operations. Those that may fail return a [Problem], or an error of which [AsProblem] makes
// one. Documents in what they return are not to be changed. It is safe for concurrent use.
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

// New returns a Control over a configuration.
func New(config Config) *Control {
	p := &written{stack: config.Stack, database: config.Database}
	c := &Control{engine: config.Engine, policy: p, telemetry: config.Telemetry, recent: config.Recent, logger: config.Logger}
	c.encoder.DegradedField = config.DegradedField
	return c
}

// logAct logs what a caller did.
func (c *Control) logAct(who Caller, what string, about ...any) {
	c.logger.Info(what, append([]any{"actor", who.Name, "via", who.Via}, about...)...)
}

// noDatabase is the answer to what needs one.
func noDatabase() *Problem {
	return Problemf(http.StatusConflict, "no database to change: start sluice with --rules, or change the policy file")
}
