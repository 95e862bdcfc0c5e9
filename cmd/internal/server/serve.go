// Package server has the command serve: the gateway, the integrations with other proxies and programs, and the
// admin address. It has the settings, and connects policy, store, listeners and metrics. Package cli imports it.
package server

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/admin"
	"github.com/sluicehq/sluice/cmd/internal/command"
	"github.com/sluicehq/sluice/cmd/internal/recent"
	"github.com/sluicehq/sluice/cmd/internal/server/listeners"
	"github.com/sluicehq/sluice/cmd/internal/server/logging"
	"github.com/sluicehq/sluice/cmd/internal/server/metrics"
	"github.com/sluicehq/sluice/cmd/internal/server/rules"
	"github.com/sluicehq/sluice/cmd/internal/server/tracing"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// Command returns the command "serve". version is the version of the program.
func Command(version string) *cobra.Command {
	s := new(settings)
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway or the decision service",
		Long: "Run the gateway or the decision service.\n\n" +
			"With --upstream, the gateway forwards requests to an upstream if the policy allows them. With\n" +
			"--check, --grpc, --resp or --spoe, other proxies and programs can query the decisions of the\n" +
			"policy. Without --upstream, there is no gateway: only these integrations and --admin run.\n\n" +
			"Every flag can also be set by an environment variable (SLUICE_LOG_LEVEL for --log-level) or by a\n" +
			"line in the --config file (log_level: debug). Flags override environment variables, which\n" +
			"override the file.\n\n" +
			"SIGHUP, or a change to the policy file, reloads the policy. An invalid policy is rejected, and\n" +
			"the old one stays in force.\n\n" +
			"Rules in a database (--rules) are added to the file's, or replace those with the same name.\n" +
			"Changes in the database take effect within a second. While the database is unavailable, the\n" +
			"last policy stays in force. Tables that the database lacks are created.\n\n" +
			"SIGTERM makes /readyz fail. Sluice keeps serving for --drain-delay, then waits for requests in\n" +
			"progress, closes WebSockets, and exits with 0.",
		Example: "  sluice serve --upstream sample\n" +
			"  sluice serve --policy api.yaml --upstream http://localhost:3000\n" +
			"  sluice serve --policy api.yaml --check :8081 --auth nginx",
		Args:    command.FlagsOnly,
		PreRunE: command.ApplySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			origin := func(flag string) string { return command.Origin(c.Flags(), flag) }
			if err := s.complete(origin); err != nil {
				return err
			}
			return command.Failed((&server{settings: s, origin: origin, version: version}).run(c.Context()))
		},
	}
	s.addFlags(c)
	return c
}

// server is a running "sluice serve".
type server struct {
	settings *settings
	origin   func(flag string) string // returns where the value of a flag is from
	version  string

	log       *slog.Logger
	rules     *rules.Rules
	store     *stores.Store
	engine    *policy.Engine
	fleet     *telemetry.Fleet // nil: telemetry is off
	recent    *recent.Fleet    // nil: no requests are recorded
	metrics   *metrics.Metrics
	upstreams upstreamStats
	tracer    *tracing.Tracer // nil: tracing is off
	health    admin.Health
	listeners *listeners.Set
}

// run serves until a signal ends ctx.
func (s *server) run(ctx context.Context) error {
	ballast := gcBallast()
	defer runtime.KeepAlive(ballast)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	var closeLog func()
	s.log, closeLog = logging.New(os.Stderr, s.settings.log.Level)
	defer closeLog()
	return s.start(ctx, hangups)
}

// start opens the policy and the store, and serves until ctx ends.
func (s *server) start(ctx context.Context, hangups <-chan os.Signal) (err error) {
	s.rules, err = rules.Open(ctx, rules.Config{
		Settings: &s.settings.rules, Log: s.log, Origin: s.origin,
		Accept: s.settings.accept, Warnings: s.settings.integrations.warnings,
	})
	if err != nil {
		return err
	}
	defer func() { _ = s.rules.Close() }()
	calls := metrics.NewStoreCalls()
	if s.store, err = s.settings.store.open(ctx, s.log, calls.Note); err != nil {
		return fmt.Errorf("%s: %w", s.origin("store"), err)
	}
	defer func() { _ = s.store.Close() }()
	s.engine = policy.NewEngine(s.store, s.rules.Stack().Policy())
	defer s.engine.ReleaseAll(context.Background())
	if s.settings.log.Refusals {
		defer telemetry.LogRefusals(s.engine, s.log)()
	}
	if url := s.settings.telemetry.traces; url != "" {
		if s.tracer, err = tracing.Open(ctx, url, s.engine, s.version, s.log); err != nil {
			return fmt.Errorf("%s: %w", s.origin("traces"), err)
		}
		deadline := s.settings.drain.deadline(ctx)
		defer func() { s.tracer.Close(deadline()) }()
	}
	s.observe(calls)
	return s.serve(ctx, hangups)
}

// observe registers the observers of the engine's decisions.
func (s *server) observe(calls *metrics.StoreCalls) {
	s.upstreams = newUpstreamStats(&s.settings.gateway.upstreams)
	var recorder *telemetry.Recorder
	if s.settings.telemetry.enabled {
		recorder = telemetry.Watch(s.engine, telemetry.Config{Subjects: true, Version: s.version, Upstreams: s.upstreams.all})
		s.fleet = newFleet(recorder, s.engine, s.store, calls)
	}
	if size := s.settings.telemetry.recent; size > 0 {
		s.recent = s.newRecent(recent.Watch(s.engine, int64(size)))
	}
	s.rules.Use(s.engine, s.store, recorder)
	s.metrics = metrics.New(metrics.Config{
		Version: s.version, Engine: s.engine, Store: s.store, Calls: calls, Recorder: recorder, Rules: s.rules, Upstreams: s.upstreams.all, Log: s.log,
	})
}

// serve serves until ctx ends.
func (s *server) serve(ctx context.Context, hangups <-chan os.Signal) (err error) {
	if s.listeners, err = listeners.New(s.log); err != nil {
		return err
	}
	if err := s.listen(); err != nil {
		s.listeners.Close()
		return err
	}
	var background sync.WaitGroup
	defer background.Wait()
	following, stopFollowing := context.WithCancel(ctx)
	defer stopFollowing()
	background.Go(func() { s.rules.Follow(following, hangups) })
	// An instance still decides while it drains, so the other instances still need its numbers.
	exchanging, stopExchanging := context.WithCancel(context.WithoutCancel(ctx))
	defer stopExchanging()
	if s.fleet != nil {
		background.Go(func() { s.fleet.Run(exchanging) })
	}
	if s.recent != nil {
		background.Go(func() { s.recent.Run(following) })
	}
	background.Go(func() { exchangeDemand(exchanging, s.engine, s.store.Board(), s.log) })
	ready := func(is bool) {
		s.health.SetReady(is)
		state := "STOPPING"
		if is {
			state = "READY"
		}
		listeners.NotifySystemd(s.log, state)
	}
	return s.listeners.Run(ctx, ready, s.settings.drain.Drain)
}

// listen opens the sockets, so that a bad address is found before anything runs.
func (s *server) listen() error {
	connections := s.settings.connections.bounds(s.log, s.engine.TrustedProxies, s.settings.gateway.upstreams.isSample())
	about := []any{"policy", cmp.Or(s.settings.rules.File, s.settings.rules.EnvoyConfig, s.rules.Stack().Name), "store", s.store.String()}
	if upstreams := &s.settings.gateway.upstreams; upstreams.any() {
		if err := s.openGateway(connections); err != nil {
			return err
		}
		about = append(about, "upstream", upstreams.String())
	}
	if err := s.openIntegrations(); err != nil {
		return err
	}
	if err := s.openAdmin(connections); err != nil {
		return err
	}
	if err := s.listeners.CheckInherited(); err != nil {
		return err
	}
	s.log.Info("sluice serves", append(s.listeners.LogAttributes(), about...)...)
	return nil
}
