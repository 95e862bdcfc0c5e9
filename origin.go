package sluice

// Origin is the source of a decision about a charge. The zero value is [ByStore].
type Origin uint8

const (
	// ByStore: the store decided, from its counts.
	ByStore Origin = iota
	// ByDenyCache: a shared store remembered a recent denial, and did not call its server.
	ByDenyCache
	// ByLease: this process decided, from units that it has reserved in the shared store.
	ByLease
	// BySync: this process decided, from its own counts and those that others have reported.
	BySync
	// ByLocalShare: a local allowance of the limit decided, because the shared store does not answer.
	ByLocalShare
	// ByOnError: [Allow] or [Deny] decided, because the shared store does not answer. The receipt of an admitted
	// charge describes the local allowance; in the receipt of a refused charge, only Now and Origin are set.
	ByOnError
)

var originNames = [...]string{ByStore: "store", ByDenyCache: "deny_cache", ByLease: "lease", BySync: "sync", ByLocalShare: "local_share", ByOnError: "on_error"}

// String returns a word for logs: "store", "deny_cache", "lease", "sync", "local_share" or "on_error".
func (o Origin) String() string { return originNames[min(o, ByOnError)] }

// Degraded reports whether the decision was made without the shared store because the store does not answer. It is
// false for decisions from a deny cache, a lease or synced counts.
func (o Origin) Degraded() bool { return o >= ByLocalShare }
