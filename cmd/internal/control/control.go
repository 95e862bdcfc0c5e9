// Package control has the operations on a running Sluice: on rules, tiers, overrides, subjects and statistics, and
// explanations of decisions. Each operation takes its [Caller], checks role, dry run and version, and writes the
// audit log, so that the admin API and the console need not. The admin API sends the values that operations return
// as JSON.
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
	// View returns the present counts, which do not change later.
	View() *telemetry.View
	// Find returns the key of a subject by its ID in a View.
	Find(id string) (key string, found bool)
	// FindRefusals returns the refusals of a request that any instance keeps.
	FindRefusals(ctx context.Context, id string) telemetry.FoundRefusals
}

// Config configures a Control. All fields but Database, Telemetry, Recent and DegradedField are required.
type Config struct {
	Engine *policy.Engine
	// Stack has the policy in force as it is written, and Database changes it. Without a Database, the policy comes
	// from a file.
	Stack    *source.Stack
	Database *source.Database
	// Telemetry is nil if nothing is counted.
	Telemetry Telemetry
	// Recent is nil if decisions are not recorded.
	Recent *recent.Fleet
	// DegradedField is the gateway's setting, for explained responses.
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

// logAct logs what a caller did.
func (c *Control) logAct(who Caller, what string, about ...any) {
	c.logger.Info(what, append([]any{"actor", who.Name, "via", who.Via}, about...)...)
}

// noDatabase returns the problem of an operation that needs a database.
func noDatabase() *Problem {
	return Problemf(http.StatusConflict, "no database to change: start sluice with --rules, or change the policy file")
}
