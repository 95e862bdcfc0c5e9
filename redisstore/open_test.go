package redisstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/redisstore"
)

// plan compiles a limit such as "5/hour".
func plan(t testing.TB, a sluice.Algorithm, limit string) *sluice.Plan {
	t.Helper()
	l, err := sluice.ParseLimit(limit)
	if err != nil {
		t.Fatal(err)
	}
	l.Algorithm = a
	p, err := sluice.NewPlan(l)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// take takes one unit and returns whether it fitted.
func take(t testing.TB, s sluice.Store, key string, p *sluice.Plan) bool {
	t.Helper()
	var r [1]sluice.Receipt
	if err := s.Take(t.Context(), []sluice.Charge{{Key: key, Plan: p, Cost: 1}}, r[:]); err != nil {
		t.Fatal(err)
	}
	return r[0].Fits
}

// counts fails the test if a store does not count.
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
	certs := redistest.NewCerts(t)
	plain := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "s3cret", "--user", "app", "on", ">pw", "~*", "+@all")
	secure := redistest.Start(t, certs.Settings(t)...)
	node := redistest.StartCluster(t, 3, 0).Nodes[0]
	watched := redistest.StartSentinel(t, "mymaster")
	tls := "?ca=" + certs.CA + "&cert=" + certs.Cert + "&key=" + certs.Key

	for _, url := range []string{
		"redis://" + plain.Addr,
		"redis://" + plain.Addr + "/3",
		"unix://" + plain.Socket,
		"unix://" + plain.Socket + "?db=4&prefix=x:",
		"redis://:s3cret@" + locked.Addr,
		"redis://app:pw@" + locked.Addr + "/1",
		"rediss://" + secure.TLSAddr + tls,
		"redis-cluster://" + node.Addr,
		"redis-cluster://localhost:1," + node.Addr,
		"redis-sentinel://" + watched.Addr + "/mymaster",
		"redis-sentinel://localhost:1," + watched.Addr + "/mymaster/5",
	} {
		t.Run(url[:strings.Index(url, ":")], func(t *testing.T) { counts(t, open(t, url)) })
	}

	silent := redistest.Silent(t)
	for _, tt := range []struct{ name, url, want string }{
		{"wrong password", "redis://:wrong@" + locked.Addr, "password is wrong"},
		{"unknown user", "redis://who:s3cret@" + locked.Addr, "password is wrong"},
		{"no password", "redis://" + locked.Addr, "asks for a password"},
		{"unknown database", "redis://" + plain.Addr + "/99", "no database 99"},
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

// refused fails the test if Open hangs, or does not refuse a URL, with an error
// of that kind that contains want and no password.
func refused(t *testing.T, url string, kind redisstore.Kind, want string) {
	t.Helper()
	start := time.Now()
	s, err := redisstore.Open(t.Context(), url)
	if err == nil {
		s.Close()
		t.Fatal("was opened")
	}
	if d := time.Since(start); d > 30*time.Second {
		t.Errorf("took %v", d)
	}
	if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != kind {
		t.Errorf("error %v, want kind %v", err, kind)
	}
	if !strings.Contains(err.Error(), want) {
		t.Errorf("error %q does not say %q", err, want)
	}
	if strings.Contains(err.Error(), "wrong@") || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("error %q shows the password", err)
	}
}

func TestParseURLErrors(t *testing.T) {
	for url, want := range map[string]string{
		"":                                    "begins with a scheme",
		"redis:u:secret@h":                    "begins with a scheme",
		"http://x":                            "unknown scheme",
		"redis://u:secret@h:port":             "port",
		"redis://h/x":                         "not a number",
		"redis://h/-1":                        "not a number",
		"redis://h/1/2":                       "too much",
		"redis://a,b":                         "use redis-cluster://",
		"redis://h?cert=x":                    "use rediss://",
		"redis://h?timeout=1":                 "unknown parameter: use db",
		"redis://u:a/secret@h":                "%2F for",
		"redis://u:a?secret@h":                "%3F for",
		"redis://u:a#secret@h":                "%23 for",
		"redis://u:%secret@h":                 "%25 for",
		"redis://h:1:secret":                  "address 1: write host:port",
		"redis-cluster://a,:secret":           "address 2: the port",
		"redis://h?db=1&db=2":                 "given twice",
		"redis://h?prefix={x}":                "brace",
		"rediss://h?cert=x":                   "one of them is missing",
		"rediss://h?ca=/nonexistent":          "ca: no such file",
		"rediss://h?ca=/dev/null":             "no certificate",
		"redis-sentinel://h":                  "name of the master",
		"redis-cluster://h/1":                 "too much",
		"redis-cluster://h?db=1":              "only database 0",
		"unix://run/redis.sock":               "third slash",
		"redis-cluster://u:secret@a:1,b:2,c%": "",
	} {
		c, err := redisstore.ParseURL(url)
		if err == nil {
			t.Errorf("%q was read as %+v", url, c)
			continue
		}
		if e, ok := errors.AsType[*redisstore.Error](err); !ok || e.Kind != redisstore.Misconfigured {
			t.Errorf("%q: %v is not of kind Misconfigured", url, err)
		}
		if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: error %q, want %q", url, err, want)
		}
	}
}

func TestParseURL(t *testing.T) {
	c, err := redisstore.ParseURL("rediss-cluster://us%40er:p%3Aw@a,b:7000,[::1]?prefix=p&server_name=n")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Addrs, " "); got != "a:6379 b:7000 [::1]:6379" {
		t.Errorf("addresses %q", got)
	}
	if !c.Cluster || c.Username != "us@er" || c.Password != "p:w" || c.Prefix != "p" || c.TLS == nil || c.TLS.ServerName != "n" {
		t.Errorf("%+v", c)
	}
	c, err = redisstore.ParseURL("redis-sentinel://:pw@a,b:7000/main/2?sentinel_user=u&sentinel_password=sp")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(c.Addrs, " "); got != "a:26379 b:7000" {
		t.Errorf("addresses %q", got)
	}
	if c.Master != "main" || c.DB != 2 || c.Password != "pw" || c.SentinelUsername != "u" || c.SentinelPassword != "sp" || c.TLS != nil {
		t.Errorf("%+v", c)
	}
}

func TestParseURLHashKey(t *testing.T) {
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
	if _, err := redisstore.ParseURL("redis://a?hash_key=" + file + ".gone"); err == nil || !strings.Contains(err.Error(), "hash_key") {
		t.Errorf("a file that is not there: %v", err)
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

// FuzzSecrets holds what is said about a URL, be it wrong or right, to leave out what stands
// before an "@", and the values of parameters.
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
			t.Errorf("%s…%s: the error shows it: %v", before, after, err)
		}
		if text := c.String(); strings.Contains(text, secret) {
			t.Errorf("%s…%s: shown as %s", before, after, text)
		}
	})
}

// String shows where, in a form that ParseURL reads.
func TestConfigString(t *testing.T) {
	for url, want := range map[string]string{
		"redis://u:p@h":                               "redis://h:6379",
		"redis://TOKEN@h/3?prefix=x":                  "redis://h:6379/3",
		"rediss://u:p@[::1]:7000":                     "rediss://[::1]:7000",
		"redis-cluster://u:p@a,b:1":                   "redis-cluster://a:6379,b:1",
		"redis-sentinel://a,b/main/2?sentinel_user=u": "redis-sentinel://a:26379,b:26379/main/2",
		"unix://u:p@/run/redis.sock?db=4":             "unix:///run/redis.sock?db=4",
	} {
		c, err := redisstore.ParseURL(url)
		if err != nil || c.String() != want {
			t.Errorf("%s is shown as %s, want %s (%v)", url, c, want, err)
		}
	}
}
