package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicehq/sluice/httplimit"
	"github.com/sluicehq/sluice/internal/admin"
	"github.com/sluicehq/sluice/internal/adminapi"
	"github.com/sluicehq/sluice/internal/proxy"
	"github.com/sluicehq/sluice/internal/sample"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/stores"
)

// examplePolicy is the word for the policy that is built in.
const examplePolicy = "example"

type serveSettings struct {
	policy, rules   string
	proxy, admin    address
	upstream        upstream
	headerTimeout   period
	stallTimeout    period
	upstreamTimeout period
	drainDelay      period
	drainTimeout    period
	maxHeader       size
	maxBody         size
	logLevel        level
	store           storeSettings
	strictReady     bool
	degradedField   bool
	quotaPath       plainPath
	keepHeaders     []string
	adminHosts      []string
	access          adminAccess
	silence         period
	maxStreams      number
	maxConnections  number
	maxPerAddress   number
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
		Short: "Run the gateway: limit requests, and pass the rest on to an upstream",
		Long: "Run the gateway: limit requests by a policy, and pass the rest on to an upstream.\n\n" +
			"Every flag is a setting. Flags win over environment variables (SLUICE_LOG_LEVEL for\n" +
			"--log-level), which win over the file of --config (log_level: debug).\n\n" +
			"SIGHUP, or a change to the policy file, reloads the policy; a bad one is rejected and the\n" +
			"old one stays in force. So it is with the rules of a database (--rules), which are followed\n" +
			"within a second: they come on top of the file's. While the database is away, the last policy\n" +
			"stays. Its tables are made if they are not there.\n\n" +
			"SIGTERM makes /readyz fail, goes on serving for --drain-delay, then\n" +
			"lets requests in progress finish, closes WebSockets, and exits with 0.",
		Example: "  sluice serve --upstream sample\n" +
			"  sluice serve --policy api.yaml --upstream http://localhost:3000",
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
	rulesFlag(f, &s.rules, "where more rules, tiers and overrides are, beside --policy or alone")
	f.Var(&s.upstream, "upstream", "where to send requests: a URL, or \"sample\" for the built-in API")
	f.Var(&s.proxy, "proxy", "address the gateway listens on")
	f.Var(&s.admin, "admin", "address that serves /healthz, /readyz, /metrics and the admin API below /v1/")
	f.StringSliceVar(&s.adminHosts, "admin-hosts", nil, "host `names` the admin address answers to, besides localhost and IP addresses")
	s.access.flags(f)
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
	f.Var(&s.logLevel, "log-level", "debug, info, warn or error")
	// It fails only for a flag that there is not.
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions(
		[]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	return c
}

// complete derives what was not given, or says what is missing.
func (s *serveSettings) complete() error {
	if s.upstream.url == nil {
		return errors.New("which upstream? Give --upstream URL, or --upstream sample for the built-in API")
	}
	if s.policy == "" && s.rules == "" && s.upstream.isSample() {
		s.policy = examplePolicy
	}
	switch {
	case s.policy == "" && s.rules == "":
		return errors.New("which policy? Give --policy FILE, --policy example for the built-in one, or --rules URL for one in a database")
	case s.policy == stdin:
		return fmt.Errorf("%s: the gateway reloads its policy when it changes, and cannot do so from standard input: give a file", s.origin("policy"))
	}
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients would cost the gateway its memory")
	}
	return errors.Join(s.access.check(), s.store.check())
}

func (s *serveSettings) run(ctx context.Context) error {
	ballast := gcBallast()
	defer runtime.KeepAlive(ballast)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	log := newLog(os.Stderr, s.logLevel)
	rules, err := s.openRules(ctx, log)
	if err != nil {
		return err
	}
	defer func() { _ = rules.close() }()
	store, err := s.store.open(ctx, log)
	if err != nil {
		return fmt.Errorf("%s: %w", s.origin("store"), err)
	}
	defer func() { _ = store.Close() }()
	engine := policy.NewEngine(store, rules.stack.Policy())
	rules.engine, rules.store = engine, store
	logCrossSlot(log, store, engine.Policy())
	var health admin.Health
	listeners, err := s.listen(log, engine, store, &health, rules)
	if err != nil {
		return err
	}

	var background sync.WaitGroup
	defer background.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	background.Go(func() { rules.follow(watching, reload) })
	return listeners.run(ctx, health.SetReady, time.Duration(s.drainDelay), time.Duration(s.drainTimeout))
}

// maxAnew bounds the lines about limits that begin anew.
const maxAnew = 20

// logAnew says which limits have forgotten what was counted, since a reload has changed them.
func logAnew(log *slog.Logger, all []policy.Anew) {
	for _, a := range all[:min(len(all), maxAnew)] {
		log.Warn("limit begins anew: what was counted under the old one does not count", "rule", a.Rule, "of", a.From, "was", a.Was, "is", a.Is)
	}
	if more := len(all) - maxAnew; more > 0 {
		log.Warn("limits begin anew: what was counted under the old ones does not count", "more", more)
	}
}

// newLog writes text for people at a terminal, and JSON for everybody else.
func newLog(out *os.File, l level) *slog.Logger {
	options := &slog.HandlerOptions{Level: l.Level, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Value.Kind() == slog.KindDuration { // JSON would have a number of nanoseconds
			a.Value = slog.StringValue(a.Value.Duration().String())
		}
		return a
	}}
	if info, err := out.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// listen opens the sockets, so that a bad address is found before anything runs.
func (s *serveSettings) listen(log *slog.Logger, engine *policy.Engine, store *stores.Store, health *admin.Health, rules *rules) (*listeners, error) {
	ls := &listeners{log: log}
	target, err := s.openUpstream(ls)
	if err != nil {
		return nil, err
	}
	connections := s.bounds(log, engine)
	if err := s.openProxy(ls, connections, s.handler(log, engine, target, connections.Most)); err != nil {
		return nil, err
	}
	api := adminapi.Config{
		Engine: engine, Current: rules.admin.now, Database: rules.admin.database(),
		Tokens: rules.tokens(&tokenFile{path: s.access.tokens}), Logger: log,
	}
	if err := s.openAdmin(ls, api, s.adminMux(health, store, connections, rules)); err != nil {
		return nil, err
	}
	log.Info("sluice serves", append(ls.addresses(), "upstream", target.Redacted(), "policy", cmp.Or(s.policy, rules.stack.Name), "store", store.String())...)
	return ls, nil
}

// openUpstream returns where requests go, and opens that if it is the sample API.
func (s *serveSettings) openUpstream(ls *listeners) (*url.URL, error) {
	if !s.upstream.isSample() {
		return s.upstream.url, nil
	}
	l, err := ls.open("sample", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l.http(&http.Server{Handler: sample.Handler(), ReadHeaderTimeout: time.Minute})
	return &url.URL{Scheme: "http", Host: l.socket.Addr().String()}, nil
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
		MaxHeader:     int(s.maxHeader),
		Log:           ls.log,
	})
	l.http(server)
	l.drain = server.Shutdown
	return nil
}

func (s *serveSettings) openAdmin(ls *listeners, api adminapi.Config, mux *http.ServeMux) error {
	l, err := ls.open("--admin", s.admin)
	if err != nil {
		return err
	}
	api.Local = onlyHere(l.socket.Addr()) && !s.access.configured()
	if err := s.access.guard(ls.log, l.socket.Addr(), api.Tokens); err != nil {
		ls.close()
		return err
	}
	mux.Handle("/v1/", adminapi.Handler(api))
	few := &proxy.Connections{Most: adminConnections, Log: ls.log}
	l.socket = few.Listener(l.socket, time.Duration(s.stallTimeout))
	if config, _ := s.access.tls(); config != nil { // it was read before
		l.socket = tls.NewListener(l.socket, config)
	}
	l.http(&http.Server{
		Handler:           admin.Hosts(append(s.adminHosts, string(s.admin)), mux),
		ReadHeaderTimeout: time.Duration(s.headerTimeout),
		IdleTimeout:       time.Minute,
		ErrorLog:          slog.NewLogLogger(ls.log.Handler(), slog.LevelDebug),
	})
	return nil
}

// handler is the way of a request: cleaned, decided about, passed on.
func (s *serveSettings) handler(log *slog.Logger, engine *policy.Engine, target *url.URL, connections int) http.Handler {
	upstream := proxy.Upstream{
		URL:     target,
		Timeout: time.Duration(s.upstreamTimeout),
		MaxBody: int64(s.maxBody),
		Silence: time.Duration(s.silence),
		Trusted: engine.TrustedProxies,
		Keep:    s.keepHeaders,
		Reads:   func(name string) bool { return engine.Policy().Reads(name) },
		Log:     log,

		MaxStreams:     cmp.Or(int(s.maxStreams), (connections+1)/2),
		MaxConnections: connections,
	}
	limit := httplimit.Config{
		Logger: log, DegradedField: s.degradedField, BodyTimeout: time.Duration(s.headerTimeout), QuotaPath: string(s.quotaPath),
	}.Policy(engine)
	return proxy.Clean(upstream, limit(httplimit.Keep(proxy.Handler(upstream))))
}

func (s *serveSettings) adminMux(health *admin.Health, store *stores.Store, connections *proxy.Connections, rules *rules) *http.ServeMux {
	if s.strictReady {
		health.Require(store.Answers)
	}
	mux := http.NewServeMux()
	mux.Handle("/", admin.Handler(health))
	mux.Handle("GET /metrics", metrics(store, connections, rules))
	return mux
}
