package sluice

// Origin says who has decided about a charge. The zero value is [ByStore].
type Origin uint8

const (
	// ByStore: the store, from what it has counted.
	ByStore Origin = iota
	// ByDenyCache: a shared store's memory of what its server refused lately. The server
	// was not asked.
	ByDenyCache
	// ByLocalShare: a local share of the limit, since the shared store does not answer.
	ByLocalShare
	// ByOnError: [Allow] or [Deny], since the shared store does not answer. The receipt of
	// an admitted charge tells of the local share, that of a refused one only the time.
	ByOnError
)

var originNames = [...]string{ByStore: "store", ByDenyCache: "deny_cache", ByLocalShare: "local_share", ByOnError: "on_error"}

// String returns a word for logs: "store", "deny_cache", "local_share" or "on_error".
func (o Origin) String() string { return originNames[min(o, ByOnError)] }

// Degraded reports whether the decision was made without the shared store.
func (o Origin) Degraded() bool { return o >= ByLocalShare }
