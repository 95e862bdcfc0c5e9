package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/admin"
	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/door/proxy"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
	"github.com/sluicehq/sluice/telemetry"
)

// examplePolicy is the word for the policy that is built in.
const examplePolicy = "example"

type serveSettings struct {
	policy, rules   string
	shadow          bool
	proxy, admin    address
	upstream        upstreams
	upstreamCA      string
	tls             tlsFiles
	headerTimeout   period
	stallTimeout    period
	upstreamTimeout period
	drainDelay      period
	drainTimeout    period
	maxHeader       size
	maxBody         size
	logLevel        level
	logRefusals     bool
	traces          tracesURL
	tracing         *tracing // nil: off
	store           storeSettings
	strictReady     bool
	degradedField   bool
	quotaPath       plainPath
	keepHeaders     []string
	adminHosts      []string
	access          adminAccess
	doors           doors
	envoy           envoySettings
	silence         period
	maxStreams      number
	maxConnections  number
	maxPerAddress   number
	telemetry       bool
	origin          func(flag string) string // see the function of that name
}

func serveCommand() *cobra.Command {
	s := &serveSettings{
		proxy:           ":8080",
		admin:           "127.0.0.1:9090",
		headerTimeout:   period(10 * time.Second),
		stallTimeout:    period(time.Minute),
		upstreamTimeout: period(time.Minute),
		drainTimeout:    period(30 * time.Second),
		silence:         period(5 * time.Minute),
		maxHeader:       64 << 10,
		store:           newStoreSettings(),
	}
	c := &cobra.Command{
		Use:   "serve",
		Short: "Run the gateway, or what other proxies and programs ask",
		Long: "Run the gateway: limit requests by a policy, and pass the rest on to an upstream. With --check,\n" +
			"--grpc, --resp or --spoe, other proxies and programs ask about requests by the same policy; then\n" +
			"--upstream may be left out, and there is no gateway.\n\n" +
			"Every flag is a setting. Flags win over environment variables (SLUICE_LOG_LEVEL for\n" +
			"--log-level), which win over the file of --config (log_level: debug).\n\n" +
			"SIGHUP, or a change to the policy file, reloads the policy; a bad one is rejected and the\n" +
			"old one stays in force. The same holds for the rules of a database (--rules), which are followed\n" +
			"within a second: they come on top of the file's. While the database is away, the last policy\n" +
			"stays. Its tables are made if they are not there.\n\n" +
			"SIGTERM makes /readyz fail, keeps serving for --drain-delay, then\n" +
			"lets requests in progress finish, closes WebSockets, and exits with 0.",
		Example: "  sluice serve --upstream sample\n" +
			"  sluice serve --policy api.yaml --upstream http://localhost:3000\n" +
			"  sluice serve --policy api.yaml --check :8081 --auth nginx",
		Args:    flagsOnly,
		PreRunE: applySettings,
		RunE: func(c *cobra.Command, _ []string) error {
			s.origin = func(flag string) string { return origin(c.Flags(), flag) }
			if err := s.complete(); err != nil {
				return err
			}
			if err := s.run(c.Context()); err != nil {
				return &failedError{err}
			}
			return nil
		},
	}
	f := c.Flags()
	f.String(configFlag, "", "YAML `file` with settings")
	f.StringVar(&s.policy, "policy", "", "policy `file`, or \"example\" for the built-in one (default with the sample upstream)")
	rulesFlag(f, &s.rules, "where more rules, tiers and overrides are, in addition to --policy or alone")
	f.BoolVar(&s.shadow, "shadow", false, "refuse nothing: every rule only counts and reports, whatever it says and wherever it comes from")
	f.Var(&s.upstream, "upstream", "where to send requests: an http or https URL, h2c://… for HTTP/2 without TLS, or \"sample\" for the\nbuilt-in API; repeat it as HOST=URL for each host that has one of its own")
	f.StringVar(&s.upstreamCA, "upstream-ca", "", "`file` with the certificate authorities to trust for https upstreams (default the system's)")
	s.tls.flags(f, "", "the gateway, which speaks TLS then, with HTTP/1.1 and HTTP/2",
		"`file` with the authorities that sign client certificates, which are then required")
	f.Var(&s.proxy, "proxy", "address the gateway listens on")
	f.Var(&s.admin, "admin", "address that serves /healthz, /readyz, /metrics and the admin API below /v1/")
	f.StringSliceVar(&s.adminHosts, "admin-hosts", nil, "host `names` the admin address answers to, besides localhost and IP addresses")
	s.access.flags(f)
	s.doors.flags(f)
	s.envoy.flags(f)
	s.store.flags(f)
	f.BoolVar(&s.strictReady, "strict-ready", false, "report ready only while the store answers")
	f.BoolVar(&s.degradedField, "degraded-field", false, "add X-RateLimit-Degraded: true to answers decided without the store")
	f.Var(&s.quotaPath, "quota-path", "path at which clients are told what is left of their limits, such as /v1/quota (default none)")
	f.Var(&s.headerTimeout, "header-timeout", "longest wait for the head of a request, and again for a body that rules read")
	f.Var(&s.stallTimeout, "stall-timeout", "longest wait for a client that neither sends nor reads its body")
	f.Var(&s.upstreamTimeout, "upstream-timeout", "longest wait for the head of a response; 0 means no limit")
	f.Var(&s.silence, "idle-timeout", "longest silence from the upstream within a response, or from both sides of a WebSocket; 0 means no limit")
	f.Var(&s.drainDelay, "drain-delay", "how long to go on taking requests after SIGTERM, while /readyz fails, for load balancers to notice")
	f.Var(&s.drainTimeout, "drain-timeout", "longest wait for requests to finish after SIGTERM")
	f.Var(&s.maxHeader, "max-header", "largest request head")
	f.Var(&s.maxBody, "max-body", "largest request body; 0 means no limit")
	f.Var(&s.maxConnections, "max-connections", "most client connections (default as many as the limit on open files allows, up to 16384)")
	f.Var(&s.maxPerAddress, "max-connections-per-address", "most connections from one address that is not a trusted proxy (default an eighth of all, at least 16)")
	f.Var(&s.maxStreams, "max-streams", "most open WebSockets and event streams (default half of the connections)")
	f.StringSliceVar(&s.keepHeaders, "keep-headers", nil, "`names` of header fields to pass on that would be dropped because they can change\nthe path, the method or the host, such as X-HTTP-Method-Override")
	f.BoolVar(&s.telemetry, "telemetry", true, "count decisions, for the console, sluice top and the admin API; false saves some memory and time")
	f.Var(&s.logLevel, "log-level", "debug, info, warn or error")
	f.BoolVar(&s.logRefusals, "log-refusals", true, "log refused requests at level info: the first of each subject, then fewer and fewer")
	f.Var(&s.traces, "traces", "OTLP/HTTP `URL` to send traces to, such as http://localhost:4318: spans of requests whose callers have a sampled\ntrace. OTEL_EXPORTER_OTLP_HEADERS, OTEL_SERVICE_NAME and similar variables set the rest (default none)")
	// It fails only for a flag that there is not.
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(
		[]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// complete derives what was not given, or says what is missing.
func (s *serveSettings) complete() error {
	if !s.upstream.any() && !s.doors.any() {
		return errors.New("which upstream? Give --upstream URL, or --upstream sample for the built-in API, or a door without one, such as --check :8081")
	}
	if s.policy == "" && s.rules == "" && s.envoy.dir == "" && s.upstream.isSample() {
		s.policy = examplePolicy
	}
	switch {
	case s.envoy.dir != "" && s.policy != "":
		return fmt.Errorf("%s: the configuration of --envoy-config is the policy: leave one of them out, or make a policy of it with \"sluice import envoy\"", s.origin("policy"))
	case s.policy == "" && s.rules == "" && s.envoy.dir == "":
		return errors.New("which policy? Give --policy FILE, --policy example for the built-in one, or --rules URL for one in a database")
	case s.policy == stdin:
		return fmt.Errorf("%s: the gateway reloads its policy when it changes, and cannot do so from standard input: give a file", s.origin("policy"))
	}
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients would cost the gateway its memory")
	}
	if !s.upstream.any() && s.tls.cert != "" {
		return errors.New("--tls-cert is for the gateway, which needs an --upstream: for the other doors it is --door-tls-cert")
	}
	return errors.Join(s.tls.check(), s.access.check(), s.doors.check(), s.envoy.check(s.doors.grpcAt), s.store.check())
}

func (s *serveSettings) run(ctx context.Context) error {
	ballast := gcBallast()
	defer runtime.KeepAlive(ballast)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	defer signal.Stop(hangups)

	log, closeLog := newLog(os.Stderr, s.logLevel)
	defer closeLog()
	rules, err := s.openRules(ctx, log)
	if err != nil {
		return err
	}
	defer func() { _ = rules.close() }()
	m := &measured{calls: newStoreCalls()}
	store, err := s.store.open(ctx, log, m.calls.note)
	if err != nil {
		return fmt.Errorf("%s: %w", s.origin("store"), err)
	}
	defer func() { _ = store.Close() }()
	engine := policy.NewEngine(store, rules.stack.Policy())
	defer engine.ReleaseAll(context.Background())
	if s.shadow {
		engine.ShadowAll()
		rules.watches.Store(true)
		log.Warn("NOTHING IS REFUSED: with --shadow every rule only counts and reports; leave it out to enforce the policy")
	}
	rules.engine, rules.store = engine, store
	if s.logRefusals {
		defer telemetry.LogRefusals(engine, log)()
	}
	if s.traces != "" {
		if s.tracing, err = openTraces(ctx, s.traces, engine, log); err != nil {
			return fmt.Errorf("%s: %w", s.origin("traces"), err)
		}
		ended := s.endsBy(ctx)
		defer func() { s.tracing.close(ended()) }()
	}
	logCrossSlot(log, store, engine.Policy())
	logEvicted(log, store, engine.Policy())
	rules.recorded = s.watch(engine, store, m.calls)
	rules.tellShadow()
	var health admin.Health
	m.watch(engine, rules.recorded.recorder)
	m.cuts = watchCuts(engine, log)
	listeners, err := s.listen(log, m, engine, store, &health, rules)
	if err != nil {
		return err
	}

	var background sync.WaitGroup
	defer background.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	reload := make(chan os.Signal)
	background.Go(func() { rules.follow(watching, reload) })
	background.Go(func() { rules.relay(watching, hangups, reload) })
	// An instance that drains is still asked, and the others have to know of it.
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTelling()
	background.Go(func() { rules.recorded.run(telling) })
	background.Go(func() { exchangeDemand(telling, engine, store.Board(), log) })
	ready := func(is bool) {
		health.SetReady(is)
		state := "STOPPING=1"
		if is {
			state = "READY=1"
		}
		tellSystemd(log, state)
	}
	return listeners.run(ctx, ready, time.Duration(s.drainDelay), time.Duration(s.drainTimeout))
}

// maxRestarts bounds the lines about limits that begin anew.
const maxRestarts = 20

// logRestarts says which limits have forgotten what was counted, since a reload has changed them.
func logRestarts(log *slog.Logger, all []policy.Restart) {
	for _, a := range all[:min(len(all), maxRestarts)] {
		log.Warn("limit begins anew: what was counted under the old one does not count", "rule", a.Rule, "of", a.From, "was", a.Was, "is", a.Is)
	}
	if more := len(all) - maxRestarts; more > 0 {
		log.Warn("limits begin anew: what was counted under the old ones does not count", "more", more)
	}
}

// newLog writes text for people at a terminal, and JSON for everybody else. Nobody waits for whoever
// reads it; close writes what is left.
func newLog(out *os.File, l level) (log *slog.Logger, close func()) {
	options := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // JSON would have a number of nanoseconds
			a.Value = slog.StringValue(logged(a.Value.Duration()))
		}
		return a
	}}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(out, options)), func() {} // held up by hand
	}
	queue := newLogQueue(out)
	return slog.New(slog.NewJSONHandler(queue, options)), queue.close
}

// logged writes 15m0s as 15m, and 1h0m0s as 1h.
func logged(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// listen opens the sockets, so that a bad address is found before anything runs.
func (s *serveSettings) listen(log *slog.Logger, m *measured, engine *policy.Engine, store *stores.Store, health *admin.Health, rules *rules) (*listeners, error) {
	inherited, err := inheritedSockets()
	if err != nil {
		return nil, err
	}
	ls := &listeners{log: log, inherited: inherited}
	connections := s.bounds(log, engine)
	about := []any{"policy", cmp.Or(s.policy, s.envoy.dir, rules.stack.Name), "store", store.String()}
	for _, files := range []*tlsFiles{&s.tls, &s.doors.tls, &s.access.tls} {
		files.log = log
	}
	if s.upstream.any() {
		h, err := s.openUpstreams(ls, engine, connections.Most)
		if err != nil {
			return nil, err
		}
		if err := s.openProxy(ls, connections, h); err != nil {
			return nil, err
		}
		about = append(about, "upstream", s.upstream.String())
	}
	s.envoy.limits = rules.envoy
	if err := s.openDoors(ls, engine); err != nil {
		return nil, err
	}
	over := control.Config{Engine: engine, Stack: rules.stack, Database: rules.db, Logger: log, DegradedField: s.degradedField}
	if fleet := rules.recorded.fleet; fleet != nil {
		over.Telemetry = fleet
	}
	if err := s.openAdmin(ls, over, rules.tokens(&tokenFile{path: s.access.tokens}), s.adminMux(m, health, store, connections, rules)); err != nil {
		return nil, err
	}
	if err := ls.untaken(); err != nil {
		return nil, err
	}
	log.Info("sluice serves", append(ls.addresses(), about...)...)
	return ls, nil
}

func (s *serveSettings) openProxy(ls *listeners, connections *proxy.Connections, h http.Handler) error {
	l, err := ls.open("--proxy", s.proxy)
	if err != nil {
		return err
	}
	l.socket = connections.Listener(l.socket, time.Duration(s.stallTimeout))
	server := proxy.Server(h, proxy.Client{
		HeaderTimeout: time.Duration(s.headerTimeout),
		StallTimeout:  time.Duration(s.stallTimeout),
		Silence:       time.Duration(s.silence),
		MaxHeader:     int(s.maxHeader),
		Log:           ls.log,
	})
	config, err := s.tls.config(tls.RequireAndVerifyClientCert, "h2", "http/1.1")
	if err != nil {
		ls.close()
		return err
	}
	if config != nil {
		noteFingerprints(server, config)
		l.socket = tls.NewListener(l.socket, config)
	}
	l.drainHTTP(server)
	return nil
}

// adminPatience is how long a request to the admin address may take that is no stream.
const adminPatience = 30 * time.Second

func (s *serveSettings) openAdmin(ls *listeners, over control.Config, tokens func() ([]control.Token, error), mux *http.ServeMux) error {
	l, err := ls.open("--admin", s.admin)
	if err != nil {
		return err
	}
	if err := s.access.guard(ls.log, l.socket.Addr(), tokens); err != nil {
		ls.close()
		return err
	}
	done, end := context.WithCancel(context.Background())
	who := &access.Access{Tokens: tokens, Local: onlyHere(l.socket.Addr()) && !s.access.configured(), Guess: newGuesses(ls.log).at("--admin")}
	api := adminapi.New(adminapi.Config{Control: control.New(over), Access: who, Done: done.Done(), Logger: ls.log})
	mux.Handle("/v1/", api)
	mux.Handle("/", dashboardOf(over, api, s.firstRequest(ls)))
	few := &proxy.Connections{Most: adminConnections, Log: ls.log}
	l.socket = few.Listener(l.socket, time.Duration(s.stallTimeout))
	// Probes and scrapers have no certificate, and need none.
	if secure, _ := s.access.tls.config(tls.VerifyClientCertIfGiven); secure != nil { // it was read before
		l.socket = tls.NewListener(l.socket, secure)
	}
	server := &http.Server{
		Handler:           admin.Hosts(append(s.adminHosts, string(s.admin)), mux),
		ReadHeaderTimeout: time.Duration(s.headerTimeout),
		ReadTimeout:       time.Duration(s.headerTimeout) + adminPatience, // streams take it away
		IdleTimeout:       time.Minute,
		// Streams have at most half of the places. Browsers that only keep theirs for later must not
		// take the other half from probes.
		ConnState: func(c net.Conn, state http.ConnState) {
			if state == http.StateIdle && few.Open() > adminConnections/2 {
				c.Close()
			}
		},
		ErrorLog: slog.NewLogLogger(ls.log.Handler(), slog.LevelDebug),
	}
	l.drainHTTP(server)
	finish, cut := l.drain, l.close
	// Who looks on is told of the drain to its end.
	l.last = true
	l.drain = func(ctx context.Context) error {
		end() // streams
		return finish(ctx)
	}
	l.close = func() error {
		end()
		return cut()
	}
	return nil
}

func (s *serveSettings) adminMux(m *measured, health *admin.Health, store *stores.Store, connections *proxy.Connections, rules *rules) *http.ServeMux {
	if s.strictReady {
		health.Require(store.Answers)
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/healthz", "/readyz"} {
		mux.Handle(path, admin.Handler(health))
	}
	mux.Handle("GET /metrics", metrics(m, store, connections, rules))
	return mux
}
