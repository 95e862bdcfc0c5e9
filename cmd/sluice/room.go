package main

// Files that are not for the connections of clients: sockets that listen, the policy and
// what watches it, the store, and so many connections to the admin address.
const (
	spareFiles       = 64
	adminConnections = 24
)

// mostConnections is the default of --max-connections.
const mostConnections = 16384

// connections returns how many connections there may be in all, by default as many as
// the files suffice for: one for the client and one for the upstream.
func (s *serveSettings) connections(files uint64) int {
	each := uint64(2)
	if s.upstream.isSample() {
		each = 3 // both ends of the way to it
	}
	switch {
	case s.maxConnections > 0:
		return int(s.maxConnections)
	case files == 0 || files > spareFiles+each*mostConnections:
		return mostConnections
	case files < spareFiles+16*each:
		return 16
	}
	return int((files - spareFiles) / each)
}

// perAddress returns how many of them one address may have: an eighth, and 16 at least.
func (s *serveSettings) perAddress(all int) int {
	if s.maxPerAddress > 0 {
		return int(s.maxPerAddress)
	}
	return max(all/8, 16)
}
