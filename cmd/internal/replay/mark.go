package replay

import (
	"encoding/binary"
	"math/bits"
	"net/http"
	"net/netip"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
	"github.com/sluicehq/sluice/cmd/internal/replay/feed"
	"github.com/sluicehq/sluice/policy"
)

// marker finds the clients of requests, and the part that each client belongs to. It must be used by one goroutine
// at a time.
type marker struct {
	run       *replay
	client    policy.Request // has only the fields that identify the client
	header    http.Header
	forwarded [1]string
}

func newMarker(run *replay) *marker {
	m := &marker{run: run}
	m.header = http.Header{"X-Forwarded-For": m.forwarded[:]}
	return m
}

func (m *marker) mark(e *feed.Entry) {
	e.Peer, e.Named = peerOf(&e.Entry)
	e.Part = 0
	if len(m.run.parts) > 1 {
		e.Part = m.partOf(&e.Entry, e.Peer)
	}
}

// partOf returns the part that the client of an entry belongs to.
func (m *marker) partOf(e *accesslog.Entry, address netip.Addr) uint8 {
	r := &m.client
	r.Peer, r.Header = address, nil
	if len(m.run.trusted) > 0 && len(e.Forwarded) > 0 {
		m.forwarded[0] = text(e.Forwarded)
		r.Header = m.header
	}
	a := m.run.split.Partition(r).As16()
	h := binary.BigEndian.Uint64(a[:8])*0x9e3779b97f4a7c15 + binary.BigEndian.Uint64(a[8:])
	part, _ := bits.Mul64((h^h>>32)*0xbf58476d1ce4e5b9, uint64(len(m.run.parts)))
	return uint8(part)
}
