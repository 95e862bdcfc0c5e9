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

// layer is a way to get decisions.
type layer struct {
	name string
	// store returns the store of the engine.
	store func(p *player) sluice.Store
	// consistency, if not empty, is set in every rule.
	consistency string
	// attributes means that the layer sends headers only as attributes, so "header:" in policies becomes "attr:".
	attributes bool
	// forwards means that a proxy at 127.0.0.1 forwards the client's address.
	forwards bool
	// open returns a function that sends a request and fills in its verdict.
	open func(p *player) func(*ongoing)
	sees sees
}

// sees lists what a layer returns of a verdict besides whether the request passes. By default it returns the status,
// the wait in seconds, and the remaining units of its limits.
type sees struct {
	exact       bool // it returns exact waits, not rounded up to seconds
	blockWaits  bool // it returns the time until a block ends
	reasons     bool // "blocked by" and "missing"
	repeats     bool // "repeated"
	shadows     bool // it returns limits of rules in shadow mode
	tightest    bool // it returns only one limit
	allowedOnly bool // it returns no status
	noNever     bool // it returns no wait if a request never fits
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

// failingOver returns a failover store. Its shared store leases or counts locally if the layer's consistency requires
// it.
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

// shared is an in-memory store with the methods of a shared store.
type shared struct{ *memory.Store }

func (s shared) TakeWithin(ctx context.Context, wait time.Duration, charges []sluice.Charge, receipts []sluice.Receipt) error {
	if wait == 0 { // only decisions from memory, and it has none
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
