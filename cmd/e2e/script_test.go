package e2e

import (
	"crypto/tls"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// Each file in testdata/script is a test of running gateways. testdata/script/README.md describes the commands.
func TestScripts(t *testing.T) { runScripts(t, "testdata/script") }

// runScripts runs the scripts of a directory, with additional variables of the environment.
func runScripts(t *testing.T, dir string, environment ...string) {
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	awayFromMidnight(t)
	testscript.Run(t, testscript.Params{
		Dir: dir, RequireExplicitExec: true, ContinueOnError: true,
		Setup: func(e *testscript.Env) error {
			e.Values["script"] = &script{T: e.T().(testing.TB), dir: e.WorkDir, gateways: map[string]*gateway{}}
			e.Setenv("PATH", filepath.Dir(testkit.Binary(t))+":"+os.Getenv("PATH"))
			e.Setenv("GORACE", "atexit_sleep_ms=20")
			e.Setenv("EXAMPLES", examples)
			e.Vars = append(e.Vars, environment...)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"serve":        positive((*script).serve),
			"certificates": positive((*script).certificates),
			"haproxy":      positive((*script).startHAProxy),
			"ports":        positive((*script).ports),
			"fail":         positive((*script).setFailures),
			"from":         positive(func(s *script, _ *testscript.TestScript, args []string) { s.source = args[0] }),
			"upstream":     positive((*script).startUpstream),
			"reached":      positive((*script).wantReached),
			"redis":        positive((*script).useRedis),
			"postgres":     positive((*script).usePostgres),
			"sql":          positive((*script).execute),
			"ask":          positive((*script).ask),
			"until":        positive((*script).askUntil),
			"raw":          positive((*script).askRaw),
			"logged":       logged,
			"metric":       positive((*script).awaitMetric),
			"await":        positive((*script).await),
			"eventually":   positive((*script).eventually),
			"signal":       positive((*script).signal),
			"ended":        positive((*script).wantEnded),
			"needs":        positive(func(s *script, _ *testscript.TestScript, args []string) { testkit.Program(s.T, args[0]) }),
		},
	})
}

// script is the state that the commands of a script share.
type script struct {
	T        testing.TB
	dir      string
	gateways map[string]*gateway
	redis    *redistest.Server
	postgres *postgrestest.Server
	reached  atomic.Int64 // requests at the upstream
	failures atomic.Int64 // number of further requests that it does not answer
	source   string       // the source address of requests, or ""
}

// of returns the script that a command belongs to.
func of(ts *testscript.TestScript) *script { return ts.Value("script").(*script) }

// positive returns a command that cannot be negated by "!".
func positive(run func(*script, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command does not support !")
		}
		run(of(ts), ts, args)
	}
}

// gateway returns the gateway with the name in the first argument, or the one without a name, and the other arguments.
func (s *script) gateway(ts *testscript.TestScript, args []string) (*gateway, []string) {
	if len(args) > 0 && s.gateways[args[0]] != nil {
		return s.gateways[args[0]], args[1:]
	}
	g := s.gateways[""]
	if g == nil {
		ts.Fatalf("no gateway is running")
	}
	return g, args
}

func (s *script) serve(ts *testscript.TestScript, args []string) {
	name, prefix := "", ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, prefix, args = args[0], args[0]+"_", args[1:]
	}
	g := testkit.StartWith(s.T, func(c *exec.Cmd) { c.Dir = ts.MkAbs(".") }, nil, args...)
	s.gateways[name] = g
	s.gateways[strings.TrimPrefix(name+".check", ".")] = &gateway{URL: "http://" + g.Check, Addr: g.Check}
	for variable, value := range map[string]string{
		"PROXY": g.URL, "ADDR": g.Addr, "ADMIN": g.Admin, "ADMIN_ADDR": strings.TrimPrefix(g.Admin, "http://"),
		"CHECK": "http://" + g.Check, "CHECK_ADDR": g.Check, "RESP": port(g.Resp),
	} {
		ts.Setenv(prefix+variable, value)
	}
	if name == "" {
		ts.Setenv("SLUICE_ADMIN_URL", g.Admin)
	}
}

// certificates makes an authority and the certificates that it signs, in the directory of the script. An argument is
// the name of a certificate, and may include a unit.
func (s *script) certificates(ts *testscript.TestScript, args []string) {
	a := testkit.NewAuthority(s.T)
	for _, arg := range args[1:] {
		name, unit, _ := strings.Cut(arg, ":")
		a.Make(name, unit)
	}
	ts.Check(os.Rename(a.CA, filepath.Join(a.Dir, args[0]+".pem")))
	ts.Check(os.Rename(filepath.Join(a.Dir, "ca.key"), filepath.Join(a.Dir, args[0]+".key")))
	ts.Check(os.CopyFS(ts.MkAbs("."), os.DirFS(a.Dir)))
}

// startUpstream starts an upstream that answers with the request that it got. The query can change the answer:
// ?status=401, ?bytes=1000, ?header=X-Cost:7. With ?status=502 the upstream does not answer, and with 504 it answers
// late. ?raw= is the whole answer. An argument is the address to listen on, or the name of a certificate.
func (s *script) startUpstream(ts *testscript.TestScript, args []string) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(s.answer))
	s.T.Cleanup(server.Close)
	switch {
	case len(args) == 0:
		server.Start()
	case strings.Contains(args[0], ":"):
		ts.Check(server.Listener.Close())
		var err error
		server.Listener, err = net.Listen("tcp", args[0])
		ts.Check(err)
		server.Start()
	default:
		pair, err := tls.LoadX509KeyPair(ts.MkAbs(args[0]+".pem"), ts.MkAbs(args[0]+".key"))
		ts.Check(err)
		server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		server.StartTLS()
	}
	ts.Setenv("UPSTREAM", server.URL)
}

func (s *script) answer(w http.ResponseWriter, r *http.Request) {
	if s.failures.Add(-1) >= 0 {
		panic(http.ErrAbortHandler)
	}
	s.reached.Add(1)
	body, _ := io.ReadAll(r.Body)
	query := r.URL.Query()
	if text := query.Get("raw"); text != "" {
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			_, _ = io.WriteString(c, text)
			c.Close()
		}
		return
	}
	if name, value, ok := strings.Cut(query.Get("header"), ":"); ok {
		w.Header().Set(name, value)
	}
	switch status, err := strconv.Atoi(query.Get("status")); {
	case err == nil && status == 504:
		<-r.Context().Done() // the gateway gives up earlier
	case err == nil && status == 502:
		panic(http.ErrAbortHandler)
	case err == nil:
		w.WriteHeader(status)
	}
	if n, err := strconv.Atoi(query.Get("bytes")); err == nil {
		_, _ = w.Write(make([]byte, n))
		return
	}
	var head strings.Builder
	_ = r.Header.Write(&head)
	fmt.Fprintf(w, "%s %s %s\n%s\n%s\n", r.Method, r.Host, r.RequestURI, strings.ReplaceAll(head.String(), "\r\n", "\n"), body)
}

// setFailures sets the number of requests that the upstream does not answer.
func (s *script) setFailures(ts *testscript.TestScript, args []string) {
	n, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	s.failures.Store(n)
}

// ports sets variables to addresses on which no server listens.
func (s *script) ports(ts *testscript.TestScript, names []string) {
	for _, name := range names {
		ts.Setenv(name, testkit.Addr(s.T))
	}
}

// wantReached waits until a number of requests have reached the upstream since its last call, and fails if there are
// more. Without a number, it only resets the count.
func (s *script) wantReached(ts *testscript.TestScript, args []string) {
	if len(args) == 0 {
		s.reached.Store(0)
		return
	}
	want, err := strconv.ParseInt(args[0], 10, 64)
	ts.Check(err)
	testkit.Await(s.T, args[0]+" requests have reached the upstream", func() bool { return s.reached.Load() >= want })
	if got := s.reached.Swap(0); got != want {
		ts.Fatalf("%d requests have reached the upstream", got)
	}
}

// usePostgres starts PostgreSQL with an empty database, or kills it and starts it again.
func (s *script) usePostgres(ts *testscript.TestScript, args []string) {
	switch {
	case len(args) == 0:
		s.postgres = postgrestest.Start(s.T)
		ts.Setenv("RULES", s.postgres.Database())
	case args[0] == "kill":
		s.postgres.Kill()
	case args[0] == "restart":
		s.postgres.Restart()
	}
}

// execute executes a statement in the database.
func (s *script) execute(ts *testscript.TestScript, args []string) {
	db, err := sql.Open("pgx", ts.Getenv("RULES"))
	ts.Check(err)
	defer db.Close()
	testkit.Await(s.T, "the database answers", func() bool { return db.Ping() == nil })
	_, err = db.Exec(args[0])
	ts.Check(err)
}

func (s *script) useRedis(ts *testscript.TestScript, args []string) {
	switch {
	case len(args) == 0:
		s.redis = redistest.Shared(s.T)
	case args[0] == "own":
		s.redis = redistest.Start(s.T, args[1:]...)
	case args[0] == "kill":
		s.redis.Kill()
	case args[0] == "restart":
		s.redis.Restart(args[1:]...)
	case args[0] == "freeze":
		s.redis.Freeze()
	case args[0] == "thaw":
		s.redis.Thaw()
	default:
		ts.Fatalf("redis: want own, kill, restart, freeze or thaw")
	}
	ts.Setenv("REDIS", s.redis.URL())
	ts.Setenv("REDIS_ADDR", s.redis.Addr)
	ts.Setenv("REDIS_PORT", strconv.Itoa(s.redis.Port))
}

// ask sends a request for each status, and prints the last answer.
func (s *script) ask(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	for i, want := range strings.Split(args[0], ",") {
		if status, answer := s.send(ts, g, args[1:]); status != want {
			ts.Fatalf("request %d: %s\n%s", i+1, status, answer)
		} else if i == strings.Count(args[0], ",") {
			fmt.Fprint(ts.Stdout(), answer)
		}
	}
}

// askUntil sends a request until the answer has the status, or matches "/PATTERN/", and prints the answer.
func (s *script) askUntil(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	answer := ""
	testkit.Await(s.T, strings.Join(args, " "), func() bool {
		var status string
		status, answer = s.send(ts, g, args[1:])
		if pattern, found := strings.CutPrefix(args[0], "/"); found {
			return regexp.MustCompile(strings.TrimSuffix(pattern, "/")).MatchString(answer)
		}
		return status == args[0]
	})
	fmt.Fprint(ts.Stdout(), answer)
}

// send sends a request. The arguments are a method, a path or URL, fields, and "=BODY".
func (s *script) send(ts *testscript.TestScript, g *gateway, args []string) (status, answer string) {
	url, body := args[1], ""
	if strings.HasPrefix(url, "/") {
		url = g.URL + url
	}
	fields := args[2:]
	if n := len(fields); n > 0 && strings.HasPrefix(fields[n-1], "=") {
		body, fields = fields[n-1][1:], fields[:n-1]
	}
	r, err := http.NewRequest(args[0], url, strings.NewReader(body))
	ts.Check(err)
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ":")
		if name == "Host" {
			r.Host = value
		}
		r.Header[name] = append(r.Header[name], value)
	}
	transport := &http.Transport{DialContext: s.dialer().DialContext, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(r)
	ts.Check(err)
	return shown(ts, resp)
}

// dialer opens connections from the address that the command "from" has set.
func (s *script) dialer() *net.Dialer {
	if s.source == "" {
		return &net.Dialer{}
	}
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(s.source)}}
}

// shown returns the status of a response, and all of it as text.
func shown(ts *testscript.TestScript, resp *http.Response) (status, answer string) {
	defer resp.Body.Close()
	var b strings.Builder
	fmt.Fprintln(&b, resp.Proto, resp.Status)
	ts.Check(resp.Header.Write(&b))
	body, err := io.ReadAll(resp.Body)
	ts.Check(err)
	return strconv.Itoa(resp.StatusCode), strings.ReplaceAll(b.String()+"\n"+string(body), "\r\n", "\n")
}

// askRaw sends lines unchanged, an empty line and "=BODY", and fails if the answer has none of the statuses.
func (s *script) askRaw(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	head, body := args[1:], ""
	if n := len(head); strings.HasPrefix(head[n-1], "=") {
		head, body = head[:n-1], head[n-1][1:]
	}
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.Join(head, `\r\n`)+`\r\n\r\n`+body, `"`, `\"`) + `"`)
	ts.Check(err)
	resp := s.exchange(ts, g, text)
	status, answer := shown(ts, resp)
	if !slices.Contains(strings.Split(args[0], "|"), status) {
		ts.Fatalf("%s\n%s", status, answer)
	}
	fmt.Fprint(ts.Stdout(), answer)
}

// exchange sends a text over a new connection, and returns the response.
func (s *script) exchange(ts *testscript.TestScript, g *gateway, text string) *http.Response {
	c, err := s.dialer().Dial("tcp", g.Addr)
	ts.Check(err)
	s.T.Cleanup(func() { c.Close() })
	_, err = io.WriteString(c, text)
	ts.Check(err)
	return readAnswer(s.T, c)
}

// logged waits for a matching line of the log, after the line that was found last. With "!", no line of the whole log
// may match.
func logged(ts *testscript.TestScript, neg bool, args []string) {
	g, args := of(ts).gateway(ts, args)
	pattern := regexp.MustCompile(args[0])
	if !neg {
		g.AwaitNext(args[0], func(r record) bool { return pattern.MatchString(r.Text) })
	} else if log := g.Logged(); pattern.MatchString(log) {
		ts.Fatalf("the log has a matching line:\n%s", log)
	}
}

// awaitMetric waits until a metric of /metrics has a value.
func (s *script) awaitMetric(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	value, err := strconv.ParseFloat(args[1], 64)
	ts.Check(err)
	g.AwaitMetric(args[0], value)
}

// await waits until a URL has a status.
func (s *script) await(ts *testscript.TestScript, args []string) {
	testkit.Await(s.T, strings.Join(args, " has "), func() bool {
		status, _ := get(s.T, args[0])
		return strconv.Itoa(status) == args[1]
	})
}

// eventually runs a command until its output has a line that matches.
func (s *script) eventually(ts *testscript.TestScript, args []string) {
	pattern := regexp.MustCompile("(?m)" + args[0])
	testkit.Await(s.T, args[0], func() bool {
		err := ts.Exec(args[1], args[2:]...)
		return err == nil && pattern.MatchString(ts.ReadFile("stdout")) || err != nil && pattern.MatchString(ts.ReadFile("stderr"))
	})
}

func (s *script) signal(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	g.Signal(map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}[args[0]])
	if args[0] == "STOP" {
		testkit.Await(s.T, "the gateway is stopped", g.Frozen)
	}
}

func (s *script) wantEnded(ts *testscript.TestScript, args []string) {
	g, args := s.gateway(ts, args)
	if code := g.Wait(); fmt.Sprint(code) != args[0] {
		ts.Fatalf("exit code %d", code)
	}
}
