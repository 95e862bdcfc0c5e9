package histories

import (
	"context"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/failover"
	"github.com/sluicehq/sluice/lease"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/synced"
)

// layer is a way to ask.
type layer struct {
	name string
	// store returns the store of the engine.
	store func(p *player) sluice.Store
	// consistency is set in every rule, if it is not empty.
	consistency string
	// attributes are all that the layer sends of headers: "header:" in policies reads "attr:".
	attributes bool
	// forwards is set where a proxy at 127.0.0.1 names the client.
	forwards bool
	// open returns a function that sends a request and fills in its verdict.
	open func(p *player) func(*ongoing)
	sees sees
}

// sees says what of a verdict a layer has, beyond whether a request passes, its status, its wait,
// and what remains of its limits.
type sees struct {
	exact       bool // waits are not rounded up to seconds
	blockWaits  bool // how long a block lasts
	reasons     bool // "blocked by" and "missing"
	repeats     bool // "repeated"
	shadows     bool // limits of rules in shadow mode
	tightest    bool // one limit only
	allowedOnly bool // no status
	noNever     bool // what never fits has no wait, as if that were unknown
}

var (
	seesAll   = sees{exact: true, blockWaits: true, reasons: true, repeats: true, shadows: true}
	seesCheck = sees{reasons: true, repeats: true, shadows: true}
)

var layers = []layer{
	{name: "engine", store: inMemory, open: openEngine, sees: seesAll},
	{name: "failover", store: failingOver, open: openEngine, sees: seesAll},
	{name: "leased", store: failingOver, consistency: "leased", open: openEngine, sees: seesAll},
	{name: "synced", store: failingOver, consistency: "synced", open: openEngine, sees: seesAll},
	{name: "httplimit", store: inMemory, open: openMiddleware},
	{name: "gateway", store: inMemory, open: openGateway},
	{name: "auth-request", store: inMemory, open: openAuthRequest},
	{name: "check", store: inMemory, open: openCheck, sees: seesCheck},
	{name: "check-rule", store: inMemory, open: openCheckRule, sees: seesCheck},
	{name: "check-grpc", store: inMemory, open: openCheckGRPC, sees: sees{exact: true, reasons: true, repeats: true, shadows: true}},
	{name: "grpclimit", store: inMemory, forwards: true, open: openInterceptor},
	{
		name: "rls", store: inMemory, attributes: true, open: openRateLimitService,
		sees: sees{blockWaits: true, tightest: true, allowedOnly: true, noNever: true},
	},
	{name: "resp", store: inMemory, open: openRESP, sees: sees{blockWaits: true}},
	{name: "spoe", store: inMemory, open: openSPOE},
}

func layerNames() (names []string) {
	for _, l := range layers {
		names = append(names, l.name)
	}
	return names
}

func inMemory(*player) sluice.Store { return memory.New() }

// failingOver is a shared store that leases, or that each instance counts for, if a rule says so.
func failingOver(p *player) sluice.Store {
	var asked failover.Shared = shared{memory.New()}
	switch p.layer.consistency {
	case "leased":
		leased := lease.New(shared{memory.New()})
		p.Cleanup(leased.Close)
		asked = leased
	case "synced":
		counts := synced.New(shared{memory.New()})
		p.Cleanup(counts.Close)
		asked = counts
	}
	store := failover.New(asked, failover.Config{Logger: silent()})
	p.Cleanup(store.Close)
	return store
}

// shared is a store in memory that is asked as a shared one is.
type shared struct{ *memory.Store }

func (s shared) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == 0 { // what is remembered: nothing
		return context.DeadlineExceeded
	}
	return s.Take(ctx, charges, receipts)
}

func (s shared) TakeEachWithin(ctx context.Context, wait time.Duration, calls []sluice.TakeCall) {
	for i := range calls {
		calls[i].Err = s.TakeWithin(ctx, wait, calls[i].Charges, calls[i].Receipts)
	}
}

func (shared) Shard(string) int { return 0 }

func (shared) Heartbeat(context.Context, string) (int, error) { return 1, nil }
