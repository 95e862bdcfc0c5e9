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

// connectionSettings bound what clients can cost.
type connectionSettings struct {
	max, maxPerAddress, maxStreams command.Number // 0: see bounds
	maxHeader                      command.Size
	headerTimeout, stallTimeout    command.Duration
}

func (s *connectionSettings) addFlags(f *pflag.FlagSet) {
	s.maxHeader = 64 << 10
	s.headerTimeout, s.stallTimeout = command.Duration(10*time.Second), command.Duration(time.Minute)
	f.Var(&s.max, "max-connections", "most client connections (default as many as the limit on open files allows, up to 16384)")
	f.Var(&s.maxPerAddress, "max-connections-per-address", "most connections from one address that is not a trusted proxy (default an eighth of all, at least 16)")
	f.Var(&s.maxStreams, "max-streams", "most open WebSockets and event streams (default half of the connections)")
	f.Var(&s.maxHeader, "max-header", "largest request head")
	f.Var(&s.headerTimeout, "header-timeout", "longest wait for the head of a request, and again for a body that rules read")
	f.Var(&s.stallTimeout, "stall-timeout", "longest wait for a client that neither sends nor reads its body")
}

func (s *connectionSettings) check() error {
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients would cost the gateway its memory")
	}
	return nil
}

// Files that are not for client connections: listening sockets, the policy and its watcher, the store, and
// the connections to the admin address.
const (
	spareFiles       = 104
	adminConnections = 64
)

// mostConnections bounds the default of --max-connections.
const mostConnections = 16384

// bounds returns the bounds of client connections. By default there are as many as open files allow, and an
// eighth of them, or 16, for one address. The sample API is in the same process, and needs files too.
func (s *connectionSettings) bounds(log *slog.Logger, trusted func() []netip.Prefix, sample bool) *proxy.Connections {
	each := uint64(2) // one file for the client and one for the upstream
	if sample {
		each = 3 // both ends of the connection to it
	}
	files := openFiles()
	most := uint64(mostConnections)
	if files > 0 {
		most = max(min(files, spareFiles+each*mostConnections)-min(files, spareFiles), 16*each) / each
	}
	most = cmp.Or(uint64(s.max), most)
	if files > 0 && most*each+spareFiles > files {
		log.Warn("there may be more connections than files: raise ulimit -n, or lower --max-connections", "connections", most, "files", files)
	}
	return &proxy.Connections{
		Most:       int(most),
		PerAddress: cmp.Or(int(s.maxPerAddress), int(max(most/8, 16))),
		Trusted:    trusted,
		Log:        log,
	}
}
