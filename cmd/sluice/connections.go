package main

import (
	"cmp"
	"log/slog"

	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/policy"
)

// Files that are not for the connections of clients: sockets that listen, the policy and
// what watches it, the store, and so many connections to the admin address.
const (
	spareFiles       = 104
	adminConnections = 64
)

// mostConnections is the default of --max-connections.
const mostConnections = 16384

// bounds returns how many connections there may be, by default as many as the files
// suffice for, and an eighth of them, or 16, for one address.
func (s *serveSettings) bounds(log *slog.Logger, engine *policy.Engine) *proxy.Connections {
	each := uint64(2) // files: one for the client and one for the upstream
	if s.upstream.isSample() {
		each = 3 // both ends of the way to it
	}
	files := openFiles()
	most := uint64(mostConnections)
	if files > 0 {
		most = max(min(files, spareFiles+each*mostConnections)-min(files, spareFiles), 16*each) / each
	}
	most = cmp.Or(uint64(s.maxConnections), most)
	if files > 0 && most*each+spareFiles > files {
		log.Warn("there may be more connections than files: raise ulimit -n, or lower --max-connections", "connections", most, "files", files)
	}
	return &proxy.Connections{
		Most:       int(most),
		PerAddress: cmp.Or(int(s.maxPerAddress), int(max(most/8, 16))),
		Trusted:    engine.TrustedProxies,
		Log:        log,
	}
}
