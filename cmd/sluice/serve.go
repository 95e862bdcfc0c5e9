package main

import (
	"cmp"
	"context"
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
	"github.com/sluicehq/sluice/internal/proxy"
	"github.com/sluicehq/sluice/internal/sample"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile/follow"
	"github.com/sluicehq/sluice/stores"
)

// examplePolicy is the word for the policy that is built in.
const examplePolicy = "example"

type serveSettings struct {
	policy          string
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
			"old one stays in force. SIGTERM makes /readyz fail, goes on serving for --drain-delay, then\n" +
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
	f.Var(&s.upstream, "upstream", "where to send requests: a URL, or \"sample\" for the built-in API")
	f.Var(&s.proxy, "proxy", "address the gateway listens on")
	f.Var(&s.admin, "admin", "address that serves /healthz, /readyz and /metrics")
	f.StringSliceVar(&s.adminHosts, "admin-hosts", nil, "host `names` the admin address answers to, besides localhost and IP addresses")
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
	if s.policy == "" && s.upstream.isSample() {
		s.policy = examplePolicy
	}
	switch s.policy {
	case "":
		return errors.New("which policy? Give --policy FILE, or --policy example for the built-in one")
	case stdin:
		return fmt.Errorf("%s: the gateway reloads its policy when it changes, and cannot do so from standard input: give a file", s.origin("policy"))
	}
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients would cost the gateway its memory")
	}
	return s.store.check()
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
	file, p, err := s.load(log)
	if err != nil {
		return unreadable(s.origin("policy"), err)
	}
	logWarnings(log, p)
	store, err := s.store.open(ctx, log)
	if err != nil {
		return fmt.Errorf("%s: %w", s.origin("store"), err)
	}
	defer func() { _ = store.Close() }()
	logCrossSlot(log, store, p)
	engine := policy.NewEngine(store, p)
	var health admin.Health
	listeners, err := s.listen(log, engine, store, &health)
	if err != nil {
		return err
	}

	var background sync.WaitGroup
	defer background.Wait()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	background.Go(func() {
		file.Watch(watching, reload, func(p *policy.Policy) {
			old := engine.Policy()
			engine.Swap(p)
			logWarnings(log, p)
			logAnew(log, p.Anew(old))
			logCrossSlot(log, store, p)
		})
	})
	return listeners.run(ctx, health.SetReady, time.Duration(s.drainDelay), time.Duration(s.drainTimeout))
}

// load reads the policy. The built-in one comes without a file to watch.
func (s *serveSettings) load(log *slog.Logger) (watcher, *policy.Policy, error) {
	if s.policy == examplePolicy {
		p, err := loadPolicy(examplePolicy, nil)
		return builtIn{log}, p, err
	}
	file := &follow.File{Path: s.policy, Logger: log}
	p, err := file.Load()
	return file, p, err
}

type watcher interface {
	Watch(ctx context.Context, reload <-chan os.Signal, apply func(*policy.Policy))
}

// builtIn is a policy that never changes.
type builtIn struct{ log *slog.Logger }

func (b builtIn) Watch(ctx context.Context, reload <-chan os.Signal, _ func(*policy.Policy)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-reload:
			b.log.Warn("nothing to load again: the policy is the built-in one; give --policy FILE")
		}
	}
}

func logWarnings(log *slog.Logger, p *policy.Policy) {
	for _, w := range p.Warnings() {
		log.Warn("policy looks wrong", "problem", w.String())
	}
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
func (s *serveSettings) listen(log *slog.Logger, engine *policy.Engine, store *stores.Store, health *admin.Health) (*listeners, error) {
	ls := &listeners{log: log}
	target, err := s.openUpstream(ls)
	if err != nil {
		return nil, err
	}
	connections := s.bounds(log, engine)
	if err := s.openProxy(ls, connections, s.handler(log, engine, target, connections.Most)); err != nil {
		return nil, err
	}
	if err := s.openAdmin(ls, s.adminHandler(health, store, connections)); err != nil {
		return nil, err
	}
	log.Info("sluice serves", append(ls.addresses(), "upstream", target.Redacted(), "policy", s.policy, "store", store.String())...)
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

func (s *serveSettings) openAdmin(ls *listeners, h http.Handler) error {
	l, err := ls.open("--admin", s.admin)
	if err != nil {
		return err
	}
	few := &proxy.Connections{Most: adminConnections, Log: ls.log}
	l.socket = few.Listener(l.socket, time.Duration(s.stallTimeout))
	l.http(&http.Server{
		Handler:           h,
		ReadHeaderTimeout: time.Duration(s.headerTimeout),
		IdleTimeout:       time.Minute,
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

func (s *serveSettings) adminHandler(health *admin.Health, store *stores.Store, connections *proxy.Connections) http.Handler {
	if s.strictReady {
		health.Require(store.Answers)
	}
	mux := http.NewServeMux()
	mux.Handle("/", admin.Handler(health))
	mux.Handle("GET /metrics", metrics(store, connections))
	return admin.Hosts(append(s.adminHosts, string(s.admin)), mux)
}
