package sluice

// Origin is the part of the system that decided a charge. The zero value is [ByStore].
type Origin uint8

const (
	// ByStore: the store, from what it has counted.
	ByStore Origin = iota
	// ByDenyCache: a shared store's memory of what its server refused lately. The server
	// was not asked.
	ByDenyCache
	// ByLease: this process, from units that it has reserved in the shared store.
	ByLease
	// BySync: this process, from what it has counted and what others have reported to it.
	BySync
	// ByLocalShare: a local allowance of the limit, since the shared store does not answer.
	ByLocalShare
	// ByOnError: [Allow] or [Deny], since the shared store does not answer. The receipt of an admitted charge
	// describes the local allowance; the receipt of a refused one has only the time.
	ByOnError
)

var originNames = [...]string{ByStore: "store", ByDenyCache: "deny_cache", ByLease: "lease", BySync: "sync", ByLocalShare: "local_share", ByOnError: "on_error"}

// String returns a word for logs: "store", "deny_cache", "lease", "sync", "local_share" or "on_error".
func (o Origin) String() string { return originNames[min(o, ByOnError)] }

// Degraded reports whether the decision was made without the shared store.
func (o Origin) Degraded() bool { return o >= ByLocalShare }
