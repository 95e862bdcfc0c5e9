//go:build long

package doors

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits"
	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// More configurations, and the sequences of requests in nginx's own tests.
func TestLongImportNginx(t *testing.T) {
	t.Parallel()
	testImports(t, "testdata/imports_long.txt")
}

// inexact matches the comments of policies that do not decide exactly as nginx.
var inexact = regexp.MustCompile(`# (also counts|does not count|nginx counts (these|all))|Not translated`)

// For random requests under random configurations, nginx decides as the engine does with the imported policy.
func TestLongImportRandom(t *testing.T) {
	t.Parallel()
	up := newHolding(t)
	exact, refused, passed := 0, 0, 0
	for seed := uint64(0); exact < 60 && seed < 6000; seed++ {
		m := &configMaker{rand.New(rand.NewPCG(seed, 31))}
		config := m.config()
		text := importedText(t, config)
		if inexact.MatchString(text) {
			continue
		}
		exact++
		rules, err := policyfile.Parse("policy.yaml", []byte(text))
		if err != nil {
			t.Fatalf("seed %d: %v\n%s\nof\n%s", seed, err, text, config)
		}
		engine := policy.NewEngine(memory.New(), rules)
		addr := testkit.Addr(t)
		nginx(t, addr, strings.NewReplacer("listen 80", "listen "+addr, "http://backend", "http://"+up.addr).Replace(config))
		p := &importPlayer{t: t, addr: addr, up: up}
		now := time.Now()
		for n := range 40 {
			from, host, path, key := "127.0.0."+m.pick("1", "9"), m.pick("a.test", "b.test", "c.test", "d.test", "e.test"), m.path(), m.pick("k", "l", "")
			method := m.pick("GET", "GET", "POST", "PUT")
			words := []string{method, path, "host=" + host, "from=" + from}
			r := &policy.Request{Method: method, Host: host, Path: path, Peer: netip.MustParseAddr(from), Header: http.Header{}, Time: now}
			if key != "" {
				words = append(words, "X-Key="+key)
				r.Header.Set("X-Key", key)
			}
			status, d := p.send(t.Context(), words), engine.Decide(t.Context(), r)
			if (status == http.StatusOK) != d.Allowed {
				t.Fatalf("seed %d, request %d, %q: nginx answers %d, the policy %+v\n%s\nof\n%s", seed, n, words, status, d, text, config)
			}
			if d.Allowed {
				passed++
			} else {
				refused++
			}
		}
	}
	t.Logf("%d configurations, %d requests passed, %d denied", exact, passed, refused)
	if exact < 60 || refused < 200 || passed < 200 {
		t.Errorf("only %d configurations are exact, %d requests passed, %d were denied", exact, passed, refused)
	}
}

func importedText(t *testing.T, config string) string {
	t.Helper()
	var files conf.Files
	if err := files.AddText("a.conf", config); err != nil {
		t.Fatal(err)
	}
	im, err := nginxlimits.Import(&files)
	if err != nil {
		t.Fatalf("%v\n%s", err, config)
	}
	text, err := im.Text([]string{"a.conf"})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// configMaker makes random configurations that nginx accepts.
type configMaker struct{ *rand.Rand }

func (m *configMaker) pick(all ...string) string { return all[m.IntN(len(all))] }

// path returns a path in one of the locations, or in none.
func (m *configMaker) path() string {
	return m.pick("/", "/x", "/a/1", "/a/b/1", "/a/b/q/z", "/s/1", "/s/t/1", "/s/t/z", "/s/u/1", "/s/u/z", "/s/u/v/z", "/r/p", "/r/q", "/other")
}

// config returns a configuration with zones. All uses of a zone have the same burst.
func (m *configMaker) config() string {
	var b strings.Builder
	b.WriteString("geo $near { default 0; 127.0.0.8/29 1; }\nmap $near $far { 0 $binary_remote_addr; default \"\"; }\nmap $uri $not_x { default $http_x_key; /x \"\"; }\n" +
		"map $request_method $writes { default \"\"; ~^(POST|PUT)$ $binary_remote_addr; }\nmap $request_method $not_post { default $binary_remote_addr; POST \"\"; }\n" +
		"map $http_x_key $with_k { default \"\"; k $binary_remote_addr; }\nmap $http_x_key $any { \"\" \"\"; default $uri; }\n" +
		"map $host $hosts { default \"\"; b.test all; ~^[cd]\\.test$ $binary_remote_addr; }\n")
	uses := make([]string, 4)
	for i := range uses {
		key := m.pick("$binary_remote_addr", "$http_x_key", "$far", "$uri", "$not_x", "all", "$binary_remote_addr$http_x_key", "$host$uri",
			"$writes", "$not_post", "$with_k", "$any", "$hosts", "$writes$uri")
		fmt.Fprintf(&b, "limit_req_zone %s zone=z%d:1m rate=1r/m;\n", key, i)
		uses[i] = fmt.Sprintf("limit_req zone=z%d%s;", i, m.pick("", " burst=1 nodelay", " burst=2 nodelay", " burst=9 delay=9"))
	}
	if m.IntN(3) == 0 {
		b.WriteString(m.pick(uses...) + "\n")
	}
	names := []string{"", " server_name b.test;", " server_name c.test d.test;"}
	for _, name := range names[:1+m.IntN(3)] {
		b.WriteString("server { listen 80;" + name + "\n" + m.limits(uses))
		all := []string{"/", "= /x", "/a/", "/a/b/", "^~ /s/", "^~ /s/t/", "/s/u/", "~ ^/r/(p|q)$", "~ ^/a/b/[^/]+/z$", "~ ^/s/", "~ ^/[^/]+/[^/]+/z$"}
		for _, at := range all {
			if at == "/" || m.IntN(2) == 0 {
				b.WriteString("    location " + at + " { " + m.limits(uses) + m.pick("", "", "", "return 200; ") + m.inner(at, uses) + "proxy_pass http://backend; }\n")
			}
		}
		b.WriteString("}\n")
	}
	return b.String()
}

// inner returns locations that nginx allows inside an outer location.
func (m *configMaker) inner(outer string, uses []string) string {
	var b strings.Builder
	for _, at := range []string{"/s/t/", "^~ /s/u/", "= /s/1", "/s/u/v/", "~ ^/s/[^/]+$", "~ ^/[^/]+/(t|u)/"} {
		allowed := outer == "/" || outer == "^~ /s/" || outer == "~ ^/s/" && strings.HasPrefix(at, "~")
		if allowed && m.IntN(3) == 0 {
			b.WriteString("location " + at + " { " + m.limits(uses) + "proxy_pass http://backend; } ")
		}
	}
	return b.String()
}

// limits returns none, one or two of the uses.
func (m *configMaker) limits(uses []string) string {
	first := m.IntN(len(uses))
	switch m.IntN(4) {
	case 0:
		return uses[first] + " "
	case 1:
		return uses[first] + " " + uses[(first+1)%len(uses)] + " "
	}
	return ""
}
