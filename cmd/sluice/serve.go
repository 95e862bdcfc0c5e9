package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
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
	"github.com/sluicehq/sluice/internal/source"
	"github.com/sluicehq/sluice/policy"
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
	drainTimeout    period
	maxHeader       size
	maxBody         size
	logLevel        level
	store           storeSettings
	strictReady     bool
	degradedField   bool
	keepHeaders     []string
	adminHosts      []string
	silence         period
	maxStreams      number
	maxConnections  number
	maxPerAddress   number
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
		Short: "Run the gateway: limit requests, and pass on the others to an upstream",
		Long: "Run the gateway: limit requests by a policy, and pass on the others to an upstream.\n\n" +
			"Every flag is a setting. What the command line leaves out is taken from the environment\n" +
			"(SLUICE_LOG_LEVEL for --log-level), else from the file of --config (log_level: debug),\n" +
			"else the default stays.\n\n" +
			"SIGHUP, or a change of the policy file, loads the policy again; a bad one is refused and\n" +
			"the old one stays. SIGTERM makes /readyz fail, lets the requests that have begun end,\n" +
			"closes WebSockets, and ends with 0.",
		Example: "  sluice serve --upstream sample\n" +
			"  sluice serve --policy api.yaml --upstream http://localhost:3000",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
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
	f.Var(&s.upstream, "upstream", "where requests go: a URL, or \"sample\" for the built-in API")
	f.Var(&s.proxy, "proxy", "where the gateway listens")
	f.Var(&s.admin, "admin", "where /healthz, /readyz and /metrics are answered")
	f.StringSliceVar(&s.adminHosts, "admin-hosts", nil, "`names` of hosts that the admin address answers for, beside localhost and addresses")
	s.store.flags(f)
	f.BoolVar(&s.strictReady, "strict-ready", false, "be ready only while the store answers")
	f.BoolVar(&s.degradedField, "degraded-field", false, "send X-RateLimit-Degraded: true with answers that were decided without the store")
	f.Var(&s.headerTimeout, "header-timeout", "longest wait for the head of a request, and again for a body that rules count by")
	f.Var(&s.stallTimeout, "stall-timeout", "longest wait for a client that neither sends nor reads its body")
	f.Var(&s.upstreamTimeout, "upstream-timeout", "longest wait for the head of a response; 0 is no bound")
	f.Var(&s.silence, "idle-timeout", "longest silence of the upstream in a response, or of both sides of a WebSocket; 0 is no bound")
	f.Var(&s.drainTimeout, "drain-timeout", "longest wait for requests to end on SIGTERM")
	f.Var(&s.maxHeader, "max-header", "largest head of a request")
	f.Var(&s.maxBody, "max-body", "largest body of a request; 0 is no bound")
	f.Var(&s.maxConnections, "max-connections", "most connections of clients (default as many as open files allow, and at most 16384)")
	f.Var(&s.maxPerAddress, "max-connections-per-address", "most connections of one client that is no trusted proxy (default an eighth of all, and at least 16)")
	f.Var(&s.maxStreams, "max-streams", "most WebSockets and event streams (default half of the connections)")
	f.StringSliceVar(&s.keepHeaders, "keep-headers", nil, "`names` of header fields that the upstream needs, of those that would be dropped\nbecause they change the path, the method or the host, such as X-HTTP-Method-Override")
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
	if s.policy == "" {
		return errors.New("which policy? Give --policy FILE, or --policy example for the built-in one")
	}
	if s.headerTimeout == 0 || s.stallTimeout == 0 || s.maxHeader == 0 {
		return errors.New("--header-timeout, --stall-timeout and --max-header must not be 0: slow or greedy clients would cost the gateway its memory")
	}
	return s.store.check()
}

func (s *serveSettings) run(ctx context.Context) error {
	room := makeRoom()
	defer runtime.KeepAlive(room)
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)

	log := newLog(os.Stderr, s.logLevel)
	file, p, err := s.load(log)
	if err != nil {
		return err
	}
	logWarnings(log, p)
	store, err := s.store.open(ctx, log)
	if err != nil {
		return err
	}
	defer store.close()
	store.logApart(log, p)
	engine := policy.NewEngine(store, p)
	servers, err := s.listen(log, engine, store)
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
			store.logApart(log, p)
		})
	})
	background.Go(func() { store.watch(watching, log) })
	return servers.run(ctx, stop, time.Duration(s.drainTimeout))
}

// load reads the policy. The built-in one comes without a file to watch.
func (s *serveSettings) load(log *slog.Logger) (watcher, *policy.Policy, error) {
	if s.policy == examplePolicy {
		p, err := loadPolicy(examplePolicy)
		return builtIn{log}, p, err
	}
	file := &source.File{Path: s.policy, Log: log}
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
func (s *serveSettings) listen(log *slog.Logger, engine *policy.Engine, store *counting) (*servers, error) {
	all := &servers{log: log, failed: make(chan error, 3)}
	target := s.upstream.url
	if s.upstream.isSample() {
		l, err := all.open("the sample API", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		target = &url.URL{Scheme: "http", Host: l.Addr().String()}
		all.sample = &service{l, &http.Server{Handler: sample.Handler(), ReadHeaderTimeout: time.Minute}}
	}
	l, err := all.open("--proxy", s.proxy)
	if err != nil {
		return nil, err
	}
	connections := s.bounds(log, engine)
	all.proxy = &service{connections.Listener(l, time.Duration(s.stallTimeout)), proxy.Server(s.handler(log, engine, target, connections.Most), proxy.Client{
		HeaderTimeout: time.Duration(s.headerTimeout),
		StallTimeout:  time.Duration(s.stallTimeout),
		MaxHeader:     int(s.maxHeader),
		Log:           log,
	})}
	if l, err = all.open("--admin", s.admin); err != nil {
		return nil, err
	}
	few := &proxy.Connections{Most: adminConnections, Log: log}
	all.admin = &service{few.Listener(l, time.Duration(s.stallTimeout)), &http.Server{
		Handler:           s.adminHandler(&all.health, store, connections),
		ReadHeaderTimeout: time.Duration(s.headerTimeout),
		IdleTimeout:       time.Minute,
	}}
	log.Info("sluice serves", "proxy", all.proxy.Addr().String(), "upstream", target.Redacted(),
		"admin", all.admin.Addr().String(), "policy", s.policy, "store", store.where)
	return all, nil
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
		Logger: log, DegradedField: s.degradedField, BodyTimeout: time.Duration(s.headerTimeout),
	}.Policy(engine)
	return proxy.Clean(upstream, limit(httplimit.Keep(proxy.Handler(upstream))))
}

func (s *serveSettings) adminHandler(health *admin.Health, store *counting, connections *proxy.Connections) http.Handler {
	if s.strictReady {
		health.Require(store.shared)
	}
	mux := http.NewServeMux()
	mux.Handle("/", admin.Handler(health))
	mux.Handle("GET /metrics", metrics(store, connections))
	return admin.Hosts(append(s.adminHosts, string(s.admin)), mux)
}

// servers is everything that listens.
type servers struct {
	log                  *slog.Logger
	health               admin.Health
	proxy, admin, sample *service
	opened               []net.Listener
	failed               chan error
}

type service struct {
	net.Listener
	server *http.Server
}

// open listens on addr. When it fails, it closes what was opened before.
func (a *servers) open(what string, addr address) (net.Listener, error) {
	l, err := net.Listen("tcp", string(addr))
	if err == nil {
		a.opened = append(a.opened, l)
		return l, nil
	}
	for _, o := range a.opened {
		o.Close()
	}
	mend := "give another address"
	if errors.Is(err, syscall.EADDRINUSE) {
		mend = "stop what listens there, or give another address"
	}
	return nil, fmt.Errorf("%s: %w: %s", what, err, mend)
}

// run serves until ctx ends or a server fails, and then drains.
func (a *servers) run(ctx context.Context, stop func(), patience time.Duration) error {
	var running sync.WaitGroup
	defer running.Wait()
	for _, s := range []*service{a.sample, a.proxy, a.admin} {
		if s == nil {
			continue
		}
		defer s.server.Close()
		running.Go(func() {
			if err := s.server.Serve(s); !errors.Is(err, http.ErrServerClosed) {
				a.failed <- err
			}
		})
	}
	a.health.SetReady(true)
	select {
	case err := <-a.failed:
		return err
	case <-ctx.Done():
	}
	stop() // a second signal ends the process at once
	a.health.SetReady(false)
	a.drain(patience)
	return nil
}

// drain lets the requests end that have begun, within bounds.
func (a *servers) drain(patience time.Duration) {
	a.log.Info("draining", "at_most", patience)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := a.proxy.server.Shutdown(ctx); err != nil {
		a.log.Warn("requests were cut off", "after", patience)
	}
	a.log.Info("bye")
}
