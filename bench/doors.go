package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// questioned is a contender that starts a server in a separate process, and asks it for decisions.
type questioned struct {
	start func(e doorPlace) *exec.Cmd
	// dial returns a speaker that uses a connection.
	dial     func(c net.Conn) speaker
	uncounts bool // the server answers without counting
	few      bool // there are few connections, with sixteen callers on each
}

// doorPlace has the directory and the addresses with which a server runs.
type doorPlace struct {
	dir, listen string
	redis       string // the address of the shared Redis server, if there is one
	upstream    string // the address of the upstream of a gateway
}

// speaker asks questions over one connection. Several questions can be open at a time.
type speaker interface {
	// ask writes a question about a key, perhaps only into the buffer that flush sends.
	ask(key string)
	flush()
	// answer reads an answer, and returns how many units of the key's limit are left.
	answer() (left int64)
	// buffered reports whether another answer has already arrived.
	buffered() bool
}

// wire has the buffers that all speakers have.
type wire struct {
	r *bufio.Reader
	w *bufio.Writer
}

func newWire(c net.Conn) wire {
	return wire{bufio.NewReaderSize(c, 64<<10), bufio.NewWriterSize(c, 64<<10)}
}

func (w wire) flush()         { must(w.w.Flush()) }
func (w wire) buffered() bool { return w.r.Buffered() > 0 }

// doorLoad has the number of connections, and the number of questions that are open on each.
type doorLoad struct {
	connections, window int
	keys                int
	overRedis           bool
}

const (
	doorBudget = 2 * time.Second
	doorLimit  = 1_000_000_000 // a day for each key: no request is denied
)

// atDoor measures a server's answers, and asserts that it has counted every question.
func atDoor(l doorLoad) func(contender) (sample, error) {
	return func(c contender) (sample, error) {
		e, cleanUp, err := l.prepare()
		if err != nil {
			return nil, err
		}
		defer cleanUp()
		how := c.start.(questioned)
		l := l
		if how.few {
			l.connections, l.window = l.connections/16, 16*l.window
		}
		s := &server{cmd: how.start(e.doorPlace), addr: e.listen, dir: e.dir}
		s.cmd.Stderr = os.Stderr
		if err := s.start(); err != nil {
			return nil, err
		}
		defer s.stop()
		all := keysOf(l.keys)
		n := l.during(doorBudget/4, s.addr, how.dial, all)
		calls, shared, used, start := e.calls(), e.shared(), s.cpu(), time.Now()
		measured := l.during(doorBudget, s.addr, how.dial, all)
		wall, used, shared := time.Since(start), s.cpu()-used, e.shared()-shared
		calls = e.calls() - calls
		if measured < 1000 {
			return nil, fmt.Errorf("only %d answers came", measured)
		}
		if err := how.proof(s.addr, all, n+measured); err != nil {
			return nil, err
		}
		us := func(d time.Duration) float64 { return float64(d) / 1000 / float64(measured) }
		taken := sample{"per second": float64(measured) / wall.Seconds(), "door CPU µs": us(used)}
		if l.overRedis {
			taken["server CPU µs"], taken["calls"] = us(shared), calls/float64(measured)
		}
		return taken, nil
	}
}

// surroundings has the directory, the upstream and the shared server that a server needs.
type surroundings struct {
	doorPlace
	store *server
}

// shared returns the processor time of the shared server.
func (e surroundings) shared() time.Duration {
	if e.store == nil {
		return 0
	}
	return e.store.cpu()
}

// calls returns how many scripts, or INCRs, the shared server has run.
func (e surroundings) calls() float64 {
	if e.store == nil {
		return 0
	}
	return e.store.calls()
}

func (l doorLoad) prepare() (e surroundings, cleanUp func(), err error) {
	e.listen = freeAddress()
	if e.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return e, nil, err
	}
	upstream := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	e.upstream = upstream.URL
	if l.overRedis {
		if e.store, err = startRedis(); err != nil {
			upstream.Close()
			return e, nil, err
		}
		e.redis = e.store.addr
	}
	return e, func() {
		upstream.Close()
		if e.store != nil {
			e.store.stop()
		}
		_ = os.RemoveAll(e.dir)
	}, nil
}

// during asks questions for a time of d, and returns how many were answered.
func (l doorLoad) during(d time.Duration, addr string, dial func(net.Conn) speaker, all keys) (n int) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	deadline := time.Now().Add(d)
	for i := range l.connections {
		wg.Go(func() {
			c, err := net.Dial("tcp", addr)
			must(err)
			defer c.Close()
			mine := l.converse(deadline, dial(c), i*7919, all)
			mu.Lock()
			defer mu.Unlock()
			n += mine
		})
	}
	wg.Wait()
	return n
}

// converse keeps l.window questions open on one connection, and returns how many were answered.
func (l doorLoad) converse(deadline time.Time, s speaker, at int, all keys) (n int) {
	ask := func() {
		s.ask(all.at(at % all.len()))
		at += 104729 // a prime: every key gets its turn
	}
	for range l.window {
		ask()
	}
	for open := l.window; open > 0; n++ {
		if !s.buffered() {
			s.flush()
		}
		s.answer()
		if open--; n%16 != 0 || time.Now().Before(deadline) {
			ask()
			open++
			continue
		}
		s.flush()
		for ; open > 0; open-- {
			s.answer()
			n++
		}
	}
	return n
}

// proof asks about every key once more, and fails if the server has not counted every question.
func (a questioned) proof(addr string, all keys, n int) error {
	if a.uncounts {
		return nil
	}
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	s := a.dial(c)
	first, counted := int64(-1), int64(0)
	for i := range all.len() {
		s.ask(all.at(i))
		s.flush()
		left := s.answer()
		first = max(first, left)
		counted -= left
	}
	if first < 0 {
		return errors.New("the answers do not contain the remaining units")
	}
	limit := int64(doorLimit)
	if first < doorLimit/2 {
		limit = throttleLimit
	}
	if counted += limit * int64(all.len()); counted != int64(n+all.len()) {
		return fmt.Errorf("the server has counted %d of %d questions", counted, n+all.len())
	}
	return nil
}

// serveSluice starts "sluice serve" with further arguments.
func serveSluice(policy string, args func(e doorPlace) []string) func(e doorPlace) *exec.Cmd {
	return func(e doorPlace) *exec.Cmd {
		all := append([]string{"serve", "--admin", "127.0.0.1:0", "--log-level", "error"}, args(e)...)
		if policy != "" {
			file := filepath.Join(e.dir, "policy.yaml")
			must(os.WriteFile(file, []byte(policy), 0o600))
			all = append(all, "--policy", file)
		}
		if e.redis != "" {
			// The timeout is long, so that even on a busy machine no decision is made without the store.
			all = append(all, "--store", "redis://"+e.redis, "--store-timeout", "10s")
		}
		return exec.Command(filepath.Join(os.Getenv(binDir), "sluice"), all...)
	}
}

const doorPolicy = `version: 1
rules:
  - {name: per-key, key: ["header:X-API-Key"], limit: 1000000000/day, algorithm: fixed_window}
`

func sluiceDoor(flag string) func(e doorPlace) *exec.Cmd {
	return serveSluice(doorPolicy, func(e doorPlace) []string { return []string{flag, e.listen} })
}

const envoyLimits = `domain: bench
descriptors:
  - key: user
    rate_limit: {unit: day, requests_per_unit: 1000000000}
`

// sluiceRLS starts "sluice serve" with the same configuration as envoyproxy/ratelimit.
func sluiceRLS(e doorPlace) *exec.Cmd {
	return serveSluice("", func(e doorPlace) []string {
		return []string{"--grpc", e.listen, "--envoy-config", envoyConfig(e.dir)}
	})(e)
}

// envoyConfig writes the configuration of envoyproxy/ratelimit, and returns its directory.
func envoyConfig(dir string) string {
	config := filepath.Join(dir, "runtime", "bench", "config")
	must(os.MkdirAll(config, 0o700))
	must(os.WriteFile(filepath.Join(config, "bench.yaml"), []byte(envoyLimits), 0o600))
	return config
}

// envoyRatelimit starts envoyproxy/ratelimit with further settings.
func envoyRatelimit(settings ...string) func(e doorPlace) *exec.Cmd {
	return func(e doorPlace) *exec.Cmd {
		envoyConfig(e.dir)
		host, port, _ := net.SplitHostPort(e.listen)
		port2 := func() string { _, p, _ := net.SplitHostPort(freeAddress()); return p }
		cmd := exec.Command(filepath.Join(os.Getenv(binDir), "ratelimit"))
		cmd.Env = append(os.Environ(),
			"USE_STATSD=false", "LOG_LEVEL=ERROR", "HOST="+host, "PORT="+port2(), "DEBUG_HOST="+host, "DEBUG_PORT="+port2(), "GRPC_HOST="+host, "GRPC_PORT="+port,
			"RUNTIME_ROOT="+filepath.Join(e.dir, "runtime"), "RUNTIME_SUBDIRECTORY=bench", "RUNTIME_WATCH_ROOT=false", "REDIS_SOCKET_TYPE=tcp", "REDIS_URL="+e.redis)
		cmd.Env = append(cmd.Env, settings...)
		return cmd
	}
}

// redisServer starts a redis-server that answers the questions itself.
func redisServer(e doorPlace) *exec.Cmd {
	_, port, _ := net.SplitHostPort(e.listen)
	return exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", e.dir)
}

// itself starts this program as the server of a floor.
func itself(flag string) func(e doorPlace) *exec.Cmd {
	return func(e doorPlace) *exec.Cmd { return exec.Command(os.Args[0], flag, e.listen) }
}

const (
	jsonDoor    = "JSON: 64 callers"
	respPiped   = "Redis protocol: pipelined 64"
	respAlone   = "Redis protocol: 64 callers"
	rlsMemory   = "Envoy's rate limit service: 64 callers"
	rlsRedis    = "Envoy's rate limit service: 64 callers, over Redis"
	doorsShared = "doors over Redis: 64 callers"

	jsonConstant = "net/http that answers a constant"
	serverIncr   = "redis-server's INCR"
	grpcOK       = "grpc-go that answers OK"
	gatewayDoor  = "gateway"
	ruleByName   = "sluice, a rule by its name"
	clThrottle   = "sluice, CL.THROTTLE"
	checkCommand = "sluice, SLUICE.CHECK"
)

func doorWorks(s setting) []work {
	cols := []string{"door CPU µs", "per second"}
	each := doorLoad{connections: 64, window: 1, keys: 10_000}
	overRedis := func(l doorLoad) doorLoad { l.overRedis = true; return l }
	commands := []contender{
		{serverIncr, floor, questioned{start: redisServer, dial: speakRESP(incrCommand)}},
		{clThrottle, ours, questioned{start: sluiceDoor("--resp"), dial: speakRESP(throttleCommand)}},
		{checkCommand, ours, questioned{start: sluiceDoor("--resp"), dial: speakRESP(checkRule)}},
	}
	rivals := []contender{
		{"envoyproxy/ratelimit over Redis", rival, questioned{start: envoyRatelimit(), dial: speakGRPC, few: true}},
		{"envoyproxy/ratelimit over Redis, with pipelines", rival, questioned{start: envoyRatelimit("REDIS_PIPELINE_WINDOW=150us", "REDIS_PIPELINE_LIMIT=8"), dial: speakGRPC, few: true}},
	}
	if s.quick {
		rivals = nil // building the rivals takes a minute
	}
	const rlsAbout = "`ShouldRateLimit` with a descriptor of one entry, over four connections of 16 callers"
	const counted = "; afterwards, the test checks that every request was counted"
	shared := append([]string{"server CPU µs", "calls"}, cols...)
	return []work{
		{jsonDoor, "`POST /v1/check` with one connection for each caller" + counted, []contender{
			{jsonConstant, floor, questioned{start: itself("-constant"), dial: speakJSON(byRule), uncounts: true}},
			{ruleByName, ours, questioned{start: sluiceDoor("--check"), dial: speakJSON(byRule)}},
			{"sluice, a request", other, questioned{start: sluiceDoor("--check"), dial: speakJSON(byRequest)}},
		}, atDoor(each), cols},
		{respPiped, "Four connections with 64 commands each under way" + counted, commands, atDoor(doorLoad{connections: 4, window: 64, keys: 10_000}), cols},
		{respAlone, "One connection for each caller" + counted, commands, atDoor(each), cols},
		{rlsMemory, rlsAbout + counted + ". The rival has no store in memory", append([]contender{
			{grpcOK, floor, questioned{start: itself("-grpc-ok"), dial: speakGRPC, uncounts: true, few: true}},
			{"sluice", ours, questioned{start: withoutRedis(sluiceRLS), dial: speakGRPC, few: true}},
		}, rivals...), atDoor(overRedis(each)), cols},
		{rlsRedis, rlsAbout + counted, append([]contender{{"sluice", ours, questioned{start: sluiceRLS, dial: speakGRPC, few: true}}}, rivals...), atDoor(overRedis(each)), shared},
		{doorsShared, "One rule: the cost of a decision for the shared server. Envoy and HAProxy have four connections with 16 callers each, and the other callers have one connection each. Calls are the scripts that the server has run per decision" + counted, []contender{
			{gatewayDoor, floor, questioned{start: serveSluice(doorPolicy, func(e doorPlace) []string {
				return []string{"--proxy", e.listen, "--upstream", e.upstream}
			}), dial: speakHTTP}},
			{"JSON", ours, questioned{start: sluiceDoor("--check"), dial: speakJSON(byRequest)}},
			{"Redis protocol", ours, questioned{start: sluiceDoor("--resp"), dial: speakRESP(checkRule)}},
			{"Envoy's rate limit service", ours, questioned{start: sluiceRLS, dial: speakGRPC, few: true}},
			{"SPOE", ours, questioned{start: sluiceDoor("--spoe"), dial: speakSPOE(false), few: true}},
			{"SPOE, with an ID", other, questioned{start: sluiceDoor("--spoe"), dial: speakSPOE(true), few: true}},
		}, atDoor(overRedis(each)), shared},
	}
}

// withoutRedis starts a server that keeps its own counts.
func withoutRedis(start func(e doorPlace) *exec.Cmd) func(e doorPlace) *exec.Cmd {
	return func(e doorPlace) *exec.Cmd {
		e.redis = ""
		return start(e)
	}
}

func askedTargets() []target {
	const cpu, perSecond, server = "door CPU µs", "per second", "server CPU µs"
	all := []target{
		{"JSON: CPU time over net/http's that answers a constant", 1.3, false, over(jsonDoor, cpu, ruleByName, jsonConstant)},
		{"Envoy's rate limit service: decisions a second over envoyproxy/ratelimit's", 2, true, overBest(rlsMemory, perSecond, "sluice")},
		{"Envoy's rate limit service: CPU time over grpc-go's that answers OK", 1.3, false, over(rlsMemory, cpu, "sluice", grpcOK)},
		{"Envoy's rate limit service over Redis: decisions a second over envoyproxy/ratelimit's", 2, true, overBest(rlsRedis, perSecond, "sluice")},
	}
	for _, d := range []string{"JSON", "Redis protocol", "Envoy's rate limit service", "SPOE"} {
		all = append(all, target{"doors over Redis: what a decision costs the server over the gateway's, " + d, 1, false, over(doorsShared, server, d, gatewayDoor)})
	}
	return append(all,
		target{"gateway: CPU time over nginx's with three limits", 2, false, over(gateway, "proxy CPU µs", sluiceProxy, nginxProxy)})
}
