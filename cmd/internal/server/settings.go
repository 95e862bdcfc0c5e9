package server

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/server/logging"
	"github.com/sluicehq/sluice/cmd/internal/server/rules"
	"github.com/sluicehq/sluice/policy"
)

// settings configure the command serve. The flags and checks of each group are in the file of the part that the
// group configures.
type settings struct {
	rules        rules.Settings
	gateway      gatewaySettings
	connections  connectionSettings
	integrations integrationSettings
	admin        adminSettings
	store        storeSettings
	telemetry    telemetrySettings
	log          logging.Settings
	drain        drainSettings
}

// addFlags adds the flags, and sets the defaults.
func (s *settings) addFlags(c *cobra.Command) {
	f := c.Flags()
	command.AddConfigFlag(f)
	s.rules.AddFlags(f)
	s.gateway.addFlags(f)
	s.connections.addFlags(f)
	s.integrations.addFlags(f)
	s.admin.addFlags(f)
	s.store.addFlags(f)
	s.telemetry.addFlags(f)
	s.log.AddFlags(c)
	s.drain.addFlags(f)
}

// complete sets the settings that follow from others. It returns an error if a setting is missing or invalid.
func (s *settings) complete(origin func(flag string) string) error {
	upstreams := &s.gateway.upstreams
	if !upstreams.any() && !s.integrations.any() {
		return errors.New("missing upstream: give --upstream URL, or --upstream sample for the built-in API, or an integration that needs none, such as --check :8081")
	}
	if !s.rules.Any() && upstreams.isSample() {
		s.rules.File = command.ExamplePolicy
	}
	if err := s.rules.Check(origin); err != nil {
		return err
	}
	if err := s.connections.check(); err != nil {
		return err
	}
	if !upstreams.any() && s.gateway.tls.Any() {
		return errors.New("--tls-cert is for the gateway, which needs an --upstream: for other integrations, use --door-tls-cert")
	}
	return errors.Join(s.gateway.check(), s.gateway.tls.Check(), s.admin.check(), s.integrations.verify(), s.checkEnvoy(), s.store.check(), s.telemetry.check())
}

func (s *settings) checkEnvoy() error {
	if s.rules.EnvoyConfig != "" && s.integrations.grpc == "" {
		return errors.New("--envoy-config: no integration uses these limits: give --grpc, the address of the rate limit service")
	}
	return nil
}

// accept returns an error if the gateway or an integration lacks data by which rules count.
func (s *settings) accept(p *policy.Policy) error {
	all := s.integrations.lacking(p)
	if s.gateway.upstreams.any() && !s.gateway.tls.Any() {
		all = append(all, p.WithoutTLS("give --tls-cert and --tls-key")...)
	}
	if len(all) == 0 {
		return nil
	}
	return all
}
