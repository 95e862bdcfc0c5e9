package e2e

import (
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Between SIGTERM and the end of the drain delay the gateway is not ready and serves all the
// same, also those who connect only now.
func TestDrainDelayServes(t *testing.T) {
	t.Parallel()
	g := serve(t, "--upstream", "sample", "--drain-delay", "1h")
	g.signal(syscall.SIGTERM)
	g.awaitStatus(g.admin+"/readyz", http.StatusServiceUnavailable)
	g.await("it says why it goes on", func(r record) bool { return strings.HasPrefix(r.Msg, "not ready") })
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for range 3 {
		resp, err := client.Get(g.url + "/health")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != 200 {
			t.Errorf("%s in the drain delay", resp.Status)
		}
	}
	if status, _ := get(t, g.admin+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d in the drain delay", status)
	}
	if strings.Contains(g.log(), `"draining"`) {
		t.Error("it drains before the delay is over")
	}
	g.signal(syscall.SIGTERM) // a second one does not wait
	if code := g.wait(); code == 0 {
		t.Error("it has waited for the end of the drain delay")
	}
}

func TestDrainDelayEnds(t *testing.T) {
	t.Parallel()
	const delay = 300 * time.Millisecond
	g := serve(t, "--upstream", "sample", "--drain-delay", delay.String())
	begin := time.Now()
	g.signal(syscall.SIGTERM)
	g.await("it drains", func(r record) bool { return r.Msg == "draining" })
	if took := time.Since(begin); took < delay {
		t.Errorf("it drains after %v, before the delay of %v is over", took, delay)
	}
	if code := g.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// A setting that is mistyped in the environment does not go unnoticed.
func TestUnknownVariable(t *testing.T) {
	t.Parallel()
	for variable, want := range map[string]string{
		"SLUICE_REQUIRE_STOR=true": "no setting SLUICE_REQUIRE_STOR: did you mean SLUICE_REQUIRE_STORE?",
		"SLUICE_STORE_URL=redis:":  "no setting SLUICE_STORE_URL: did you mean SLUICE_STORE?",
	} {
		c := exec.CommandContext(t.Context(), binary, "serve", "--upstream", "sample", "--proxy", "127.0.0.1:0", "--admin", "127.0.0.1:0")
		c.Env = append(environ(), variable)
		out, err := c.CombinedOutput()
		if err == nil || c.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), want) {
			t.Errorf("%s: %v, %s; want %s", variable, err, out, want)
		}
	}
	g := beginAs(t, []string{"env", "SLUICE_SERVICE_HOST=10.0.0.1", "SLUICE_PORT=tcp://10.0.0.1:80"}, "--upstream", "sample")
	g.awaitStatus(g.admin+"/readyz", http.StatusOK)
}

func TestStandardInput(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		args     []string
		document string
		code     int
		want     string
	}{
		{[]string{"validate", "-"}, limited(5), 0, "-: ok, 0 warnings"},
		{[]string{"validate", "-"}, broken, 1, `stdin:4: rule "r": unknown key "limt" in a rule; did you mean "limit"?`},
		{[]string{"check", "--policy", "-", "/"}, limited(5), 0, "5/day"},
		{[]string{"check", "--policy", "-", "/"}, broken, 1, `did you mean "limit"?`},
		{[]string{"serve", "--upstream", "sample", "--policy", "-"}, limited(5), 2, "give a file"},
	} {
		c := exec.CommandContext(t.Context(), binary, tt.args...)
		c.Env, c.Stdin = environ(), strings.NewReader(tt.document)
		out, _ := c.CombinedOutput()
		if c.ProcessState.ExitCode() != tt.code || !strings.Contains(string(out), tt.want) {
			t.Errorf("%q: exit code %d, %s; want %d, %s", tt.args, c.ProcessState.ExitCode(), out, tt.code, tt.want)
		}
	}
}

func TestVersionFlag(t *testing.T) {
	t.Parallel()
	var said []string
	for _, arg := range []string{"version", "--version"} {
		out, err := exec.CommandContext(t.Context(), binary, arg).Output()
		if err != nil || !strings.HasPrefix(string(out), "sluice ") {
			t.Errorf("%s: %v, %q", arg, err, out)
		}
		said = append(said, string(out))
	}
	if said[0] != said[1] {
		t.Errorf("%q", said)
	}
}
