package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/sluicehq/sluice/internal/testkit"
)

// haproxyEdits are edits of the files of deploy/haproxy, by the names that scripts use: texts that occur once, and
// their replacements.
var haproxyEdits = map[string][]string{
	"patient": {
		"timeout processing 500ms", "timeout processing 60s", "timeout hello 200ms", "timeout hello 60s",
		"timeout connect 200ms", "timeout connect 60s",
	},
	"fail-closed": {"#closed ", ""},
	"twice":       {"    http-request send-spoe-group sluice check\n", strings.Repeat("    http-request send-spoe-group sluice check\n", 2)},
	"retries": {
		"    server api ", "    retries 3\n    retry-on all-retryable-errors\n    server api ",
	},
	"bodiless": {" body=req.body,bytes(0,8192)", "", "option http-buffer-request", ""},
	"waits":    {"wait=int(400)", "wait=int(50000)"},
	"tls":      {" check inter 1s", " check inter 1s ssl verify required ca-file ca.pem crt haproxy.pem"},
}

// startHAProxy starts HAProxy in front of $UPSTREAM, with the agent at $AGENT and the edited files of deploy/haproxy.
// Unless the first edit is "impatient", the timeouts are long, so that no result depends on how busy the machine is.
func (s *script) startHAProxy(ts *testscript.TestScript, args []string) {
	name, addr := "edge", testkit.Addr(s.T)
	if _, edits := haproxyEdits[args[0]]; !edits {
		name, args = args[0], args[1:]
	}
	edits := []string{
		"bind 127.0.0.1:8000", "bind " + addr,
		"server api 127.0.0.1:3000", "server api " + strings.TrimPrefix(ts.Getenv("UPSTREAM"), "http://"),
		"server sluice 127.0.0.1:9000", "server sluice " + ts.Getenv("AGENT"),
		"/etc/haproxy/spoe-sluice.conf", "spoe-" + name + ".conf",
	}
	if args[0] == "impatient" {
		args = args[1:]
	} else {
		args = append(args, "patient")
	}
	for _, arg := range args {
		edits = append(edits, haproxyEdits[arg]...)
	}
	found := make([]int, len(edits))
	for from, to := range map[string]string{"haproxy.cfg": name + ".cfg", "spoe-sluice.conf": "spoe-" + name + ".conf"} {
		text := deployed(s.T, filepath.Join("haproxy", from))
		for i := 0; i < len(edits); i += 2 {
			found[i] += strings.Count(text, edits[i])
			text = strings.Replace(text, edits[i], edits[i+1], 1)
		}
		ts.Check(os.WriteFile(ts.MkAbs(to), []byte(text), 0o600))
	}
	for i := 0; i < len(edits); i += 2 {
		if found[i] != 1 {
			ts.Fatalf("%q occurs in deploy/haproxy %d times", edits[i], found[i])
		}
	}
	c := exec.Command(testkit.Program(s.T, "haproxy"), "-db", "-f", name+".cfg")
	c.Dir = ts.MkAbs(".")
	testkit.Launch(s.T, c, addr)
	s.gateways[name] = &gateway{URL: "http://" + addr, Addr: addr}
	ts.Setenv(name+"_PROXY", "http://"+addr)
}
