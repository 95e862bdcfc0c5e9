package main

import (
	"github.com/sluicehq/sluice/cmd/internal/door/spoe"
	"github.com/sluicehq/sluice/policy"
)

// openSPOE makes the listener of --spoe serve.
func (s *serveSettings) openSPOE(l *listener, engine *policy.Engine) error {
	agent := spoe.New(spoe.Config{Engine: engine, DegradedField: s.degradedField, Logger: s.doors.log})
	l.serve, l.drain, l.close = agent.Serve, agent.Shutdown, agent.Close
	return nil
}
