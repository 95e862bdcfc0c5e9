package server

import (
	"cmp"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
)

// connectionSettings bound the connections of clients and the resources that clients can use.
type connectionSettings struct {
	max, maxPerAddress, maxStreams command.Number // 0: see bounds
	maxHeader                      command.Size
	headerTimeout, stallTimeout    command.Duration
}

func (s *connectionSettings) addFlags(f *pflag.FlagSet) {
	s.maxHeader = 64 << 10
	s.headerTimeout, s.stallTimeout = command.Duration(10*time.Second), command.Duration(time.Minute)
	f.Var(&s.max, "max-connections", "maximum client connections (default about half of the limit on open files, up to 16384)")
	f.Var(&s.maxPerAddress, "max-connections-per-address", "maximum connections from one address (of IPv6, from one /64) that is not a trusted proxy (default an eighth of --max-connections, at least 16)")
	f.Var(&s.maxStreams, "max-streams", "maximum open WebSockets, event streams and gRPC streams (default half of --max-connections)")
	f.Var(&s.maxHeader, "max-header", "maximum size of a request head")
	f.Var(&s.headerTimeout, "header-timeout", "maximum time to receive a request head. If rules read the body, also the maximum time for its first 64 KiB;\n"+
		"the time starts again at 64 KiB, 128 KiB, 256 KiB and so on")
	f.Var(&s.stallTimeout, "stall-timeout", "maximum wait for a client that stops reading a response body, or stops sending a request body; for request bodies of gRPC calls, --idle-timeout applies instead")
}

func (s *connectionSettings) check() error {
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients could exhaust the gateway's memory")
	}
	return nil
}

const (
	// spareFiles is the number of open files that are reserved for listening sockets, the policy and its watcher, the
	// store, and the connections to the admin address.
	spareFiles       = 104
	adminConnections = 64
)

// mostConnections is the maximum default of --max-connections.
const mostConnections = 16384

// bounds returns the bounds of client connections. By default, the limit on open files determines the maximum number
// of connections, and one address may have an eighth of this maximum, but at least 16. The parameter sample reports
// whether the sample API, which also needs files, runs in this process.
func (s *connectionSettings) bounds(log *slog.Logger, trusted func() []netip.Prefix, sample bool) *proxy.Connections {
	each := uint64(2) // one file for the client, and one for the upstream
	if sample {
		each = 3 // the connection to the sample API has both ends in this process
	}
	files := openFiles()
	most := uint64(mostConnections)
	if files > 0 {
		most = max(min(files, spareFiles+each*mostConnections)-min(files, spareFiles), 16*each) / each
	}
	most = cmp.Or(uint64(s.max), most)
	if files > 0 && most*each+spareFiles > files {
		log.Warn("connections may exceed the limit on open files: raise ulimit -n, or lower --max-connections", "connections", most, "files", files)
	}
	return &proxy.Connections{
		Most:       int(most),
		PerAddress: cmp.Or(int(s.maxPerAddress), int(max(most/8, 16))),
		Trusted:    trusted,
		Log:        log,
	}
}
