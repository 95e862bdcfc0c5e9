package redisstore_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/plantest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/redisstore"
)

// counts fails the test unless the store counts.
func counts(t testing.TB, s sluice.Store) {
	t.Helper()
	p := plan(t, sluice.FixedWindow, "2/10d")
	for i, want := range []bool{true, true, false} {
		if got := take(t, s, t.Name(), p); got != want {
			t.Fatalf("take %d of a limit of 2: fits %v", i+1, got)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	certs := newCerts(t)
	plain := redistest.Shared(t)
	locked := redistest.Start(t, "--requirepass", "s3cret", "--user", "app", "on", ">pw", "~*", "+@all")
	secure := redistest.Start(t, certs.settings(t)...)
	node := redistest.SharedCluster(t).Nodes[0]
	watched := redistest.StartSentinel(t, "mymaster")
	tls := "?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key

	for _, url := range []string{
		"redis://" + plain.Addr + "?prefix=a:",
		plain.URL(),
		"unix://" + plain.Socket + "?prefix=b:",
		fmt.Sprintf("unix://%s?db=%d&prefix=x:", plain.Socket, plain.DB),
		"redis://:s3cret@" + locked.Addr,
		"redis://app:pw@" + locked.Addr + "/1",
		"rediss://" + secure.TLSAddr + tls,
		"redis-cluster://" + node.Addr + "?prefix=a:",
		"redis-cluster://localhost:1," + node.Addr + "?prefix=b:",
		"redis-sentinel://" + watched.Addr + "/mymaster",
		"redis-sentinel://localhost:1," + watched.Addr + "/mymaster/5",
	} {
		t.Run(url[:strings.Index(url, ":")], func(t *testing.T) { counts(t, open(t, url)) })
	}

	silent := silent(t)
	for _, tt := range []struct{ name, url, want string }{
		{"wrong password", "redis://:wrong@" + locked.Addr, "password is wrong"},
		{"unknown user", "redis://who:s3cret@" + locked.Addr, "password is wrong"},
		{"no password", "redis://" + locked.Addr, "requires a password"},
		{"unknown database", "redis://" + plain.Addr + "/999", "no database 999"},
		{"cluster as single", "redis://" + node.Addr, "use redis-cluster://"},
		{"cluster with database", "redis://" + node.Addr + "/1", "use redis-cluster://"},
		{"single as cluster", "redis-cluster://" + plain.Addr, "use redis://"},
		{"singles as cluster", "redis-cluster://" + plain.Addr + "," + plain.Addr, "use redis://"},
		{"sentinel as single", "redis://" + watched.Addr, "use redis-sentinel://"},
		{"single as sentinel", "redis-sentinel://" + plain.Addr + "/mymaster", "not a Sentinel"},
		{"unknown master", "redis-sentinel://" + watched.Addr + "/other", `do not know a master "other"`},
		{"replica", "redis://" + watched.Replica.Addr, "is a replica"},
		{"plain to TLS", "redis://" + secure.TLSAddr, "use rediss://"},
		{"TLS to plain", "rediss://" + plain.Addr, "use redis://"},
		{"TLS to plain cluster", "rediss-cluster://" + node.Addr, "use redis://"},
		{"untrusted certificate", "rediss://" + secure.TLSAddr, "set ca"},
		{"certificate of another host", "rediss://" + secure.TLSAddr + tls + "&server_name=other", "server_name"},
		{"no client certificate", "rediss://" + secure.TLSAddr + "?ca=" + certs.CA, "set cert and key"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			refused(t, tt.url, redisstore.Misconfigured, tt.want)
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		refused(t, "redis://127.0.0.1:1", redisstore.Unavailable, "connection refused")
	})
	for _, scheme := range []string{"redis", "rediss", "redis-cluster", "redis-sentinel"} {
		t.Run("silent "+scheme, func(t *testing.T) {
			t.Parallel()
			refused(t, scheme+"://"+silent+map[string]string{"redis-sentinel": "/m"}[scheme], redisstore.Unavailable, silent)
		})
	}
}

// refused fails the test unless Open fails with an error of the given kind that contains want and no password.
func refused(t *testing.T, url string, kind redisstore.Kind, want string) {
	t.Helper()
	s, err := redisstore.Open(t.Context(), url)
	if err == nil {
		s.Close()
		t.Fatal("Open succeeded")
	}
	if kindOf(err) != kind || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want kind %v and %q", err, kind, want)
	}
	if strings.Contains(err.Error(), "wrong@") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %q shows the password", err)
	}
}

// Each line of testdata/urls.txt is a URL and the text that describe returns for it, or a part of the error. Passwords
// are "secret", and no error contains them.
func TestParseURL(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/urls.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		url, want, ok := strings.Cut(strings.TrimSpace(line), " -> ")
		if problem, wrong := strings.CutPrefix(want, "!"); ok && wrong {
			c, err := redisstore.ParseURL(strings.TrimSpace(url))
			if kindOf(err) != redisstore.Misconfigured || !strings.Contains(err.Error(), strings.TrimSpace(problem)) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %+v, %v, want %s", url, c, err, problem)
			}
		} else if ok {
			c, err := redisstore.ParseURL(strings.TrimSpace(url))
			if got := describe(c); err != nil || got != want {
				t.Errorf("%s: %s (%v), want %s", url, got, err, want)
			}
		}
	}
	if n := strings.Count(string(text), " -> "); n < 30 {
		t.Errorf("testdata/urls.txt has %d URLs", n)
	}
}

// describe returns the String of c, and the fields that String leaves out.
func describe(c redisstore.Config) string {
	words := []string{c.String()}
	for _, field := range [][2]string{
		{"user", c.Username}, {"password", c.Password}, {"prefix", c.Prefix}, {"sentinel_user", c.SentinelUsername}, {"sentinel_password", c.SentinelPassword},
	} {
		if field[1] != "" {
			words = append(words, field[0]+"="+field[1])
		}
	}
	if c.TLS != nil && c.TLS.ServerName != "" {
		words = append(words, "server_name="+c.TLS.ServerName)
	}
	return strings.Join(words, " ")
}

func TestParseURLHashKey(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	for text, want := range map[string]string{
		strings.Repeat("k", 32) + "\r\n": strings.Repeat("k", 32),
		"short\n":                        "",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := redisstore.ParseURL("redis://a?hash_key=" + file)
		if string(c.HashKey) != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, c.HashKey, err)
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis://user:password@host:6379/1?prefix=x")
	f.Add("rediss-cluster://a,b:1?ca=x")
	f.Add("redis-sentinel://a/b/c?sentinel_user=x")
	f.Add("unix:///tmp/x?db=1")
	f.Fuzz(func(t *testing.T, url string) {
		if strings.Contains(url, "=/dev") {
			t.Skip("names a device")
		}
		c, err := redisstore.ParseURL(url)
		if err == nil && len(c.Addrs) == 0 {
			t.Errorf("%q has no address", url)
		}
	})
}

// FuzzSecrets checks that errors and String never contain the text before an "@" or the values of parameters, whether
// the URL is valid or not.
func FuzzSecrets(f *testing.F) {
	const secret = "Xs3cretX"
	for _, before := range []string{
		"redis://", "redis://:", "redis://u:", "redis:", "redis:u:", "//u:", "", "redis://u:a/", "redis://h:1/", "redis://h:1/2/", "redis://u@a/",
		"redis://u:a?", "redis://h?", "redis://u:a#", "redis://%zz", "redis://u:%4", "redis://h:1?db=", "redis-sentinel://a:1,", "redis-sentinel://a/",
		"redis-cluster://a,u:", "unix://", "unix:///a/", "http://u:", "redis://[", "redis://u: ", "redis://h:1,", "u:p://", "rediss://h?ca=",
	} {
		f.Add(before, "@h:6379/0")
		f.Add(before, "@h")
		f.Add(before, "/b@h/m?sentinel_user=u")
		f.Add(before, "%zz@[h")
	}
	for _, before := range []string{"redis://h", "redis-sentinel://h/m", "rediss://u:p@h/1", "unix:///run/x", "redis-cluster://h:1,i"} {
		for _, name := range []string{"db", "prefix", "sentinel_user", "sentinel_password", "ca", "cert", "key", "server_name", "hash_key", "other"} {
			f.Add(before+"?"+name+"=", "")
			f.Add(before+"?"+name+"=1&"+name+"=", "{")
			f.Add(before+"?ca=/dev/null&"+name+"=a&", "%")
			f.Add(before+"?cert=x&key=y&"+name+"=/", ".pem")
		}
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before, "/dev/") && !strings.Contains(before, "/dev/null") {
			t.Skip("names a device")
		}
		if !strings.Contains(after, "@") && !strings.Contains(before, "=") {
			t.Skip("no secret")
		}
		if i := strings.Index(before, "?"); !strings.Contains(after, "@") && (i < 0 || strings.Contains(before[:i], secret)) {
			t.Skip("no secret")
		}
		c, err := redisstore.ParseURL(before + secret + after)
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s…%s: the error shows the secret: %v", before, after, err)
		}
		if text := c.String(); strings.Contains(text, secret) {
			t.Errorf("%s…%s: shown as %s", before, after, text)
		}
	})
}

// Stores with a client of the caller and stores that connect by themselves share their counts, if their keys have the
// same names. Close does not close the caller's client.
func TestNewShares(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	c, p := client(t, clientOf(server)), plan(t, sluice.FixedWindow, "10/10d")
	keys := redisstore.Keys{Prefix: "mine:", HashKey: []byte("secret")}
	for want := int64(1); want <= 3; want++ {
		s, err := redisstore.New(t.Context(), c, keys)
		if err != nil {
			t.Fatal(err)
		}
		if r := plantest.One(t, s, "k", p, 1); r.Used != want {
			t.Errorf("store %d: %d are used", want, r.Used)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if try(t, s, "k", p) == nil {
			t.Error("a Take of a closed store succeeded")
		}
	}
	opened, err := redisstore.Config{Addrs: []string{server.Addr}, DB: server.DB, Prefix: keys.Prefix, HashKey: keys.HashKey}.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if n := used(t, opened, "k", p); n != 3 {
		t.Errorf("a store that connects by itself: %d are used", n)
	}
	if n := used(t, over(t, clientOf(server), redisstore.Keys{}), "k", p); n != 0 {
		t.Errorf("under another prefix: %d are used", n)
	}
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	server, replica, locked := redistest.Shared(t), redistest.Start(t), redistest.Start(t)
	replica.Do("REPLICAOF", server.Host, strconv.Itoa(server.Port))
	single := func(s *redistest.Server) rueidis.Client {
		return client(t, rueidis.ClientOption{InitAddress: []string{s.Addr}, ForceSingleClient: true})
	}
	watched := redistest.StartSentinel(t, "mymaster")
	sentinel := rueidis.ClientOption{InitAddress: []string{watched.Addr}, Sentinel: rueidis.SentinelOption{MasterSet: "mymaster"}}
	fromReplica, toReplica := sentinel, sentinel
	fromReplica.SendToReplicas = func(c rueidis.Completed) bool { return c.IsReadOnly() }
	toReplica.SendToReplicas = func(rueidis.Completed) bool { return true }
	over(t, fromReplica, redisstore.Keys{})
	sentinel.ReplicaOnly = true
	denied := single(locked)
	locked.Do("ACL", "SETUSER", "default", "-eval", "-evalsha", "-script")
	for _, test := range []struct {
		client  rueidis.Client
		prefix  string
		handler string
	}{{nil, "", "needs a client"}, {single(server), "{a}", "brace"}, {single(replica), "", "replica"}, {denied, "", "script"},
		{client(t, sentinel), "", "replicaonly"}, {client(t, toReplica), "", "sendtoreplicas"}} {
		s, err := redisstore.New(t.Context(), test.client, redisstore.Keys{Prefix: test.prefix})
		if kindOf(err) != redisstore.Misconfigured || !strings.Contains(strings.ToLower(err.Error()), test.handler) {
			t.Errorf("%v, %v, want %s", s, err, test.handler)
		}
	}
}

// pipes ignores the goroutines of a client's connections.
var pipes = func() (all []goleak.Option) {
	for _, f := range []string{"_background", "_backgroundRead", "_backgroundWrite", "backgroundPing.func1", "backgroundPing.func1.2", "Do.func2"} {
		all = append(all, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*pipe)."+f))
	}
	return all
}()

// Close ends all goroutines of a store, even if the server does not answer. The client stays usable.
func TestNewCloseEnds(t *testing.T) {
	server := redistest.Start(t)
	usual := rueidis.ClientOption{InitAddress: []string{server.Addr}, ConnWriteTimeout: 3 * time.Second}
	pooled := usual
	pooled.DisableAutoPipelining, pooled.BlockingPoolSize = true, 50
	for name, o := range map[string]rueidis.ClientOption{"usual": usual, "pooled": pooled} {
		t.Run(name, func(t *testing.T) {
			c := client(t, o)
			others := goleak.IgnoreCurrent()
			s, err := redisstore.New(t.Context(), c, redisstore.Keys{})
			if err != nil {
				t.Fatal(err)
			}
			server.Freeze()
			defer server.Thaw()
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					err := tryFor(t, 50*time.Millisecond, s, "k", plan(t, sluice.TokenBucket, "1000/10d"))
					if kind := kindOf(err); kind != redisstore.Unknown && kind != redisstore.NotSent {
						t.Errorf("with a frozen server: %v", err)
					}
				})
			}
			wg.Wait()
			soon, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			if err := s.Post(soon, "now", "a", nil, time.Minute); err == nil {
				t.Error("a Post to a frozen server succeeded")
			}
			s.Close()
			// The client's own goroutines stay.
			goleak.VerifyNone(t, append(pipes, others)...)
			server.Thaw()
			testkit.Await(t, "the client works again", func() bool { return c.Do(t.Context(), c.B().Ping().Build()).Error() == nil })
		})
	}
}
