package e2e

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// operator runs commands as somebody who administers a gateway does.
type operator struct {
	t   *testing.T
	env []string
}

func (g *gateway) operator(env ...string) *operator {
	return &operator{g.t, append([]string{"SLUICE_ADMIN_URL=" + g.admin}, env...)}
}

// run runs a command, which is split at spaces, a "+" being one within an argument, and returns its exit code and what it says.
func (o *operator) run(command string) (code int, stdout, stderr string) {
	o.t.Helper()
	var out, errs bytes.Buffer
	c := exec.CommandContext(o.t.Context(), binary, words(command)...)
	c.Env = append(environ(), o.env...)
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		o.t.Fatal(err)
	}
	return c.ProcessState.ExitCode(), out.String(), errs.String()
}

func words(command string) []string {
	all := strings.Fields(command)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "+", " ")
	}
	return all
}

// does runs a command that has to work, and say all of texts.
func (o *operator) does(command string, texts ...string) string {
	o.t.Helper()
	code, stdout, stderr := o.run(command)
	if code != 0 {
		o.t.Fatalf("sluice %s: exit code %d: %s", command, code, stderr)
	}
	o.saying(command, stdout, texts)
	return stdout
}

// fails runs a command that must not work, and has to say all of texts.
func (o *operator) fails(command string, texts ...string) {
	o.t.Helper()
	code, stdout, stderr := o.run(command)
	if code != 1 || stdout != "" {
		o.t.Errorf("sluice %s: exit code %d, want 1: %s%s", command, code, stdout, stderr)
	}
	o.saying(command, stderr, texts)
}

func (o *operator) saying(command, said string, texts []string) {
	o.t.Helper()
	for _, text := range texts {
		if !strings.Contains(said, text) {
			o.t.Errorf("sluice %s says\n%s\nand not %q", command, said, text)
		}
	}
}

const adminPolicy = `
version: 1
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 3/day}
  - {name: per-address, key: [client_ip], limit: 1000/minute}
`

// asKey sends a request with an API key, and returns the status.
func (g *gateway) asKey(key string) int {
	g.t.Helper()
	r, err := http.NewRequest("GET", g.url+"/api/users", nil)
	if err != nil {
		g.t.Fatal(err)
	}
	r.Header.Set("X-API-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// With a policy file alone, support can look, reset, give back and block.
func TestAdminCommands(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy))
	o := g.operator()
	for range 3 {
		g.asKey("k-1")
	}
	if got := g.asKey("k-1"); got != 429 {
		t.Fatalf("%d, and the limit is used up", got)
	}
	o.does("subject api_key=k-1", "per-key", "3/day", "rule (file)")
	var subject struct {
		Rules []struct {
			Limits []struct{ Used, Remaining int64 }
		}
	}
	if err := json.Unmarshal([]byte(o.does("subject api_key=k-1 --output json")), &subject); err != nil || subject.Rules[0].Limits[0].Used != 3 {
		t.Errorf("%v %+v", err, subject)
	}
	o.does("reset per-key api_key=k-1 --dry-run", "would be:")
	if got := g.asKey("k-1"); got != 429 {
		t.Errorf("%d after a dry run", got)
	}
	o.does("reset per-key api_key=k-1 --reason support", "after:")
	if got := g.asKey("k-1"); got != 200 {
		t.Errorf("%d after a reset", got)
	}
	g.asKey("k-1")
	g.asKey("k-1")
	o.does("refund per-key api_key=k-1 1")
	if first, second := g.asKey("k-1"), g.asKey("k-1"); first != 200 || second != 429 {
		t.Errorf("%d and %d after one unit was given back", first, second)
	}
	o.does("block per-key api_key=k-2 --until 2126-12-31", "blocked", "until the end of 2126-12-31 (UTC)")
	if blocked, other := g.asKey("k-2"), g.asKey("k-3"); blocked != 403 || other != 200 {
		t.Errorf("%d of the blocked one, %d of another", blocked, other)
	}
	o.does("unblock per-key api_key=k-2")
	if got := g.asKey("k-2"); got != 200 {
		t.Errorf("%d after the block was lifted", got)
	}
	o.fails("override set per-key api_key=k-1 5/day", "no database", "--rules")
	o.fails("reset per-kee api_key=k-1", `there is no rule "per-kee"`)
	o.fails("reset per-key apikey=k-1", "api_key")
	o.fails("subject header:x=1", "no rule counts by header:x")
	if log := g.log(); strings.Contains(log, "k-1") || strings.Contains(log, "k-2") || !strings.Contains(log, `"action":"block","actor":"local"`) {
		t.Errorf("the log has to say what was done, and no key: %s", log)
	}
}

// The limits of a subject follow the file of the policy.
func TestAdminFollowsFile(t *testing.T) {
	t.Parallel()
	path := write(t, "policy.yaml", adminPolicy)
	g := serve(t, "--upstream", "sample", "--policy", path)
	_, before := get(t, g.admin+"/v1/policy")
	overwrite(t, path, strings.ReplaceAll(adminPolicy, "per-key", "by-key"))
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		status, now := get(t, g.admin+"/v1/policy")
		if status == 200 && now != before && strings.Contains(now, `{"name":"by-key","source":"file"}`) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("%d %s", status, now)
		}
	}
	g.operator().does("subject api_key=k-1", "by-key")
}

// Tokens in a file say who may do what, and a changed file is a changed right.
func TestAdminTokenFile(t *testing.T) {
	t.Parallel()
	hash := func(token string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(token))) }
	tokens := write(t, "tokens.txt", "support viewer "+hash("v-secret")+"\nci operator "+hash("o-secret")+" 2126-12-31 # for the pipeline\nold admin "+hash("late")+" 2020-01-01\n")
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy), "--admin-tokens", tokens)
	g.operator().fails("subject api_key=k-1", "who are you? Set SLUICE_TOKEN to a token")
	g.operator("SLUICE_TOKEN=wrong").fails("subject api_key=k-1", "this token is not known")
	g.operator("SLUICE_TOKEN=late").fails("subject api_key=k-1", "this token has expired")
	viewer, ci := g.operator("SLUICE_TOKEN=v-secret"), g.operator("SLUICE_TOKEN=o-secret")
	viewer.does("subject api_key=k-1")
	viewer.fails("reset per-key api_key=k-1", "support has the role viewer, and this needs operator")
	ci.does("reset per-key api_key=k-1")
	overwrite(t, tokens, "support viewer "+hash("v-secret")+"\n")
	ci.fails("reset per-key api_key=k-1", "this token is not known")
	if err := os.Remove(tokens); err != nil {
		t.Fatal(err)
	}
	viewer.fails("subject api_key=k-1", "the tokens are not known")
	if status, _ := get(t, g.admin+"/healthz"); status != 200 {
		t.Errorf("/healthz needs a token: %d", status)
	}
	for _, secret := range []string{"v-secret", "o-secret", "wrong", hash("o-secret")} {
		if strings.Contains(g.log(), secret) {
			t.Errorf("the log has the secret %q:\n%s", secret, g.log())
		}
	}
}

// A page in a browser can neither give its name the address of this machine nor call from its
// own origin.
func TestAdminBrowsers(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample")
	for name, test := range map[string]struct {
		host, field string
		status      int
	}{
		"rebinding":    {"evil.example", "", 421},
		"other origin": {"", "Origin: https://evil.example", 403},
		"other site":   {"", "Sec-Fetch-Site: cross-site", 403},
		"itself":       {"", "Sec-Fetch-Site: same-origin", 200},
	} {
		r, err := http.NewRequest("GET", g.admin+"/v1/policy", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = test.host
		if field, value, ok := strings.Cut(test.field, ": "); ok {
			r.Header.Set(field, value)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != test.status || test.status != 200 && bytes.Contains(body, []byte("per-address")) {
			t.Errorf("%s: %d %s %v", name, resp.StatusCode, body, err)
		}
	}
}

// authority signs certificates of tests.
type authority struct {
	t    *testing.T
	dir  string
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	ca   string // its file
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir()}
	a.ca, _ = a.make("ca", nil)
	return a
}

// make makes a certificate, that of the authority if it has none yet, and returns the files.
func (a *authority) make(name string, units []string) (cert, key string) {
	a.t.Helper()
	pair, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name, OrganizationalUnit: units},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, BasicConstraintsValid: true, IsCA: a.cert == nil,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	if a.cert == nil {
		a.cert, a.key = template, pair
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &pair.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if template == a.cert {
		if a.cert, err = x509.ParseCertificate(der); err != nil {
			a.t.Fatal(err)
		}
	}
	private, err := x509.MarshalPKCS8PrivateKey(pair)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.file(name+".pem", "CERTIFICATE", der), a.file(name+".key", "PRIVATE KEY", private)
}

func (a *authority) file(name, kind string, der []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	overwrite(a.t, path, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
	return path
}

// Certificates take the place of tokens: the one that signs them is trusted to name the role.
func TestAdminCertificates(t *testing.T) {
	t.Parallel()
	ours, theirs := newAuthority(t), newAuthority(t)
	cert, key := ours.make("gateway", nil)
	g := begin(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy),
		"--admin-tls-cert", cert, "--admin-tls-key", key, "--admin-tls-client-ca", ours.ca)
	g.admin = strings.Replace(g.admin, "http:", "https:", 1)
	as := func(by *authority, name string, units ...string) *operator {
		cert, key := by.make(name, units)
		return g.operator("SLUICE_TLS_CA="+ours.ca, "SLUICE_TLS_CERT="+cert, "SLUICE_TLS_KEY="+key)
	}
	g.operator("SLUICE_TLS_CA="+ours.ca).fails("subject api_key=k-1", "who are you?")
	g.operator().fails("subject api_key=k-1", "certificate")
	as(ours, "anna", "sluice-operator").does("reset per-key api_key=k-1")
	as(ours, "bert", "sluice-viewer").does("subject api_key=k-1")
	as(ours, "carl", "sluice-viewer").fails("reset per-key api_key=k-1", "certificate carl has the role viewer")
	as(ours, "dora", "operator").fails("subject api_key=k-1", "who are you?")
	as(theirs, "eve", "sluice-admin").fails("subject api_key=k-1")
	if !strings.Contains(g.log(), `"actor":"certificate anna"`) {
		t.Errorf("the log does not say who it was: %s", g.log())
	}
}

// With a database, support gives a customer another limit until a date, and every gateway follows.
func TestAdminOverrides(t *testing.T) {
	t.Parallel()
	path, rules := write(t, "policy.yaml", adminPolicy), "sqlite:"+filepath.Join(t.TempDir(), "rules.db")
	one := serve(t, "--upstream", "sample", "--policy", path, "--rules", rules)
	two := serve(t, "--upstream", "sample", "--policy", path, "--rules", rules)
	o := one.operator()
	for range 3 {
		one.asKey("k-42")
	}
	o.does("override set per-key api_key=k-42 3/day+burst+5 --until 2126-12-31 --reason launch --dry-run", "would be: per-key api_key=k-42: 3/day burst 5, until the end of 2126-12-31 (UTC) (launch)")
	if got := one.asKey("k-42"); got != 429 {
		t.Errorf("%d after a dry run", got)
	}
	o.does("override set per-key api_key=k-42 3/day+burst+5 --until 2126-12-31 --reason launch", "is: per-key api_key=k-42: 3/day burst 5")
	// A burst that grows keeps what was counted.
	first, second, third := one.asKey("k-42"), one.asKey("k-42"), one.asKey("k-42")
	if first != 200 || second != 200 || third != 429 {
		t.Errorf("%d, %d and %d with two more", first, second, third)
	}
	o.does("subject api_key=k-42", "override (database)", "override: per-key api_key=k-42: 3/day burst 5")
	for range 3 {
		two.asKey("k-42") // counts by itself
	}
	two.eventually(t, "the override is in force", func() bool {
		_, stdout, _ := two.operator().run("subject api_key=k-42")
		return strings.Contains(stdout, "override (database)")
	})
	o.does("override set per-key api_key=k-42 3/day+burst+6", "was: per-key api_key=k-42: 3/day burst 5", "is: per-key api_key=k-42: 3/day burst 6")
	o.does("override set per-address client_ip=203.0.113.0/24 --block --reason abuse")
	o.does("override list", "k-42", "3/day burst 6", "blocked", "abuse", "local")
	if lines := strings.Count(o.does("override list --rule per-key --output json"), "\n"); lines != 1 {
		t.Errorf("%d lines, and there is one override of the rule", lines)
	}
	o.fails("override set per-kee api_key=k-42 5/day", "unknown rule", "per-kee")
	o.fails("override set per-key api_key=k-42 5/fortnight", "fortnight")
	o.fails("override set per-key apikey=k-42 5/day", "apikey")
	o.fails("override set per-key api_key=k-42 5/day --until tomorrow", "until", "2027-01-31")
	o.does("override delete per-key api_key=k-42", "deleted: per-key api_key=k-42: 3/day burst 6")
	o.fails("override delete per-key api_key=k-42", "there is no override")
	o.does("subject api_key=k-42", "rule (file)")
	o.does("block per-key api_key=k-2 --until 2126-12-31 --reason abuse")
	if got := one.asKey("k-2"); got != 403 {
		t.Errorf("%d of the blocked one", got)
	}
	two.eventually(t, "the block is in force", func() bool { return two.asKey("k-2") == 403 })
	two.operator().does("unblock per-key api_key=k-2")
	if got := two.asKey("k-2"); got == 403 {
		t.Error("blocked still")
	}
	if _, audit := get(t, one.admin+"/v1/audit"); !strings.Contains(audit, `"action":"replace"`) || !strings.Contains(audit, `"actor":"local"`) {
		t.Errorf("the audit log has %s", audit)
	}
	if strings.Contains(one.log()+two.log(), "k-42") {
		t.Error("a key is in a log")
	}
}

// Support puts a customer into another tier until a date, and takes them out again.
func TestAdminTiers(t *testing.T) {
	t.Parallel()
	const tiers = `
version: 1
tiers: {subject: api_key}
rules:
  - {name: per-key, key: [api_key], missing: skip, limit: 3/day, tiers: {pro: 5/day, max: 7/day}}
subjects:
  - {subject: k-file, tier: pro}
`
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", tiers), "--rules", "sqlite:"+filepath.Join(t.TempDir(), "rules.db"))
	o := g.operator()
	set := "subject set api_key=k/4=2 pro --until 2126-12-31 --reason trial"
	o.does(set+" --dry-run", "would be: api_key=k/4=2: tier pro, until the end of 2126-12-31 (UTC) (trial)")
	o.does("subject api_key=k/4=2", "3/day", "rule (file)")
	o.does(set, "is: api_key=k/4=2: tier pro, until the end of 2126-12-31 (UTC) (trial)")
	o.does("subject api_key=k/4=2", "5/day", "tier:pro")
	o.does("subject set api_key=k/4=2 max", "was: api_key=k/4=2: tier pro, until the end of 2126-12-31 (UTC) (trial)", "is: api_key=k/4=2: tier max")
	o.does("subject api_key=k/4=2", "7/day", "tier:max")
	o.does("subject list", "k/4=2", "max", "database", "local", "k-file", "file")
	if lines := strings.Count(o.does("subject list --output json"), "\n"); lines != 2 {
		t.Errorf("%d lines, and two subjects are in a tier", lines)
	}
	o.does("subject delete api_key=k/4=2 --dry-run", "would delete: api_key=k/4=2: tier max")
	o.does("subject delete api_key=k/4=2", "deleted: api_key=k/4=2: tier max")
	o.does("subject api_key=k/4=2", "3/day", "rule (file)")
	o.fails("subject delete api_key=k/4=2", "in no tier by its name")
	o.fails("subject delete api_key=k-file", "file")
	o.fails("subject set client_ip=192.0.2.7 pro", "write api_key=VALUE")
	plain := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy))
	plain.operator().fails("subject set api_key=k-1 pro", "tiers: {subject: api_key}")
}

// eventually waits for what is sure to come.
func (g *gateway) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it never came that %s", what)
		}
	}
}

// The first token of a database ends the time in which whoever is on the machine may call.
func TestAdminDatabaseTokens(t *testing.T) {
	t.Parallel()
	rules := "sqlite:" + filepath.Join(t.TempDir(), "rules.db")
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy), "--rules", rules)
	local := g.operator()
	local.does("override list")
	token := strings.TrimSpace(local.does("token create --rules " + rules + " --role operator --name ci"))
	g.eventually(t, "callers are asked who they are", func() bool { code, _, _ := local.run("override list"); return code == 1 })
	local.fails("override set per-key api_key=k-1 5/day", "who are you?")
	ci := g.operator("SLUICE_TOKEN=" + token)
	ci.does("override set per-key api_key=k-1 5/day")
	ci.does("override list", "ci")
	local.does("token delete --rules " + rules + " ci")
	g.eventually(t, "the token is refused", func() bool { code, _, _ := ci.run("override list"); return code == 1 })
	ci.fails("override list", "this token is not known")
	if log := g.log(); strings.Contains(log, token) {
		t.Errorf("the token is in the log: %s", log)
	}
}

// Where the tokens are not known, since their database has never answered, nobody gets in.
func TestAdminWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--policy", write(t, "policy.yaml", adminPolicy), "--rules", "postgres://sluice@127.0.0.1:1/rules")
	if got := g.asKey("k-1"); got != 200 {
		t.Errorf("%d by the file's policy", got)
	}
	for _, env := range []string{"SLUICE_TOKEN=", "SLUICE_TOKEN=sluice_x"} {
		g.operator(env).fails("reset per-key api_key=k-1", "the tokens are not known yet")
	}
	if status, _ := get(t, g.admin+"/metrics"); status != 200 {
		t.Errorf("/metrics: %d", status)
	}
}
