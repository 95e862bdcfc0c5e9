package server

import (
	"github.com/sluicehq/sluice/cmd/internal/door/spoe"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
)

// openSPOE serves HAProxy's SPOE. It ignores the authorizer, because the protocol has no tokens.
func (s *server) openSPOE(l *listeners.Listener, _ authorizer) {
	l.Serve(spoe.New(s.doorConfig(nil)))
}
