// Package python tests clients/python: applications in real frameworks on real servers use its middleware and a
// real service.
package python

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Most of these tests wait for other processes.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// interpreter is Debian's Python, which finds Debian's packages.
const interpreter = "/usr/bin/python3"

// python returns a command of the interpreter that finds the client and the applications.
func python(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.Command(testkit.Program(t, interpreter), args...)
	c.Dir = "testdata"
	c.Env = append(testkit.Environ(), "PYTHONDONTWRITEBYTECODE=1", "no_proxy=127.0.0.1",
		"PYTHONPATH="+filepath.Join(testkit.Root(), "clients", "python"))
	return c
}

// installed returns the modules that the interpreter finds.
var installed = sync.OnceValue(func() map[string]bool {
	names, _ := exec.Command(interpreter, "-c", "import pkgutil; print(*(m.name for m in pkgutil.iter_modules()))").Output()
	found := map[string]bool{}
	for name := range strings.FieldsSeq(string(names)) {
		found[name] = true
	}
	return found
})

// needs skips the test if one of the modules is missing.
func needs(t testing.TB, modules ...string) {
	t.Helper()
	for _, m := range modules {
		if !installed()[m] {
			testkit.Missing(t, "python3-"+m)
		}
	}
}

// app serves an application, and returns its URL.
func app(t testing.TB, server, target string, env ...string) string {
	t.Helper()
	port := testkit.Port(t)
	c := python(t, "serve.py", server, target, strconv.Itoa(port))
	c.Env = append(c.Env, env...)
	addr := "127.0.0.1:" + strconv.Itoa(port)
	testkit.Launch(t, c, addr)
	return "http://" + addr
}

// service starts a gateway with a check API, which the middleware uses.
func service(t testing.TB, policy string, args ...string) *testkit.Gateway {
	t.Helper()
	return testkit.Serve(t, append([]string{"--upstream", "sample", "--check", "127.0.0.1:0", "--policy", testkit.File(t, "policy.yaml", policy)}, args...)...)
}

func readPolicy(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("testdata/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// answered is a response, read to its end.
type answered struct {
	status int
	header http.Header
	body   string
}

func do(t testing.TB, method, url, body string, header ...string) answered {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{resp.StatusCode, resp.Header, string(got)}
}

func remaining(a answered) string { return a.header.Get("X-Ratelimit-Remaining") }

// fieldsOfServer depend on the server that sends the response, and not on limits.
var fieldsOfServer = []string{"Date", "Server", "Content-Length", "Transfer-Encoding", "Connection", "Via"}

// seconds matches numbers that change with the time.
var seconds = regexp.MustCompile(`(t=|Retry in |"retry_after":|Retry-After: |X-Ratelimit-Reset: )(\d+)`)

// text returns a response as text, and separately the numbers in it that change with the time.
func (a answered) text() (text string, passing []int) {
	h := a.header.Clone()
	for _, name := range fieldsOfServer {
		h.Del(name)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d\n", a.status)
	_ = h.Write(&b)
	b.WriteString(a.body)
	for _, m := range seconds.FindAllStringSubmatch(b.String(), -1) {
		n, _ := strconv.Atoi(m[2])
		passing = append(passing, n)
	}
	return seconds.ReplaceAllString(b.String(), "${1}N"), passing
}

// requests reads the script of requests: each line has the number of repetitions, the method, the path, and then
// header fields in quotes, or a form or JSON.
func requests(t testing.TB) (all [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			all = append(all, testkit.Words(line))
		}
	}
	return all
}

// same sends the same requests to an application behind the gateway and to the same application with the
// middleware, and compares the responses.
//
// Unless the middleware is around the whole application, Starlette or the server turns an exception into a
// response outside of it. Only the status of that response is compared.
func same(t *testing.T, server, target string, around bool) {
	policy := readPolicy(t)
	asked := service(t, policy)
	gateway := testkit.Serve(t, "--upstream", app(t, server, target), "--policy", testkit.File(t, "policy.yaml", policy))
	with := app(t, server, target, "SLUICE_URL=http://"+asked.Check)
	statuses, began := map[int]int{}, time.Now()
	for _, line := range requests(t) {
		times, err := strconv.Atoi(line[0])
		if err != nil {
			t.Fatal(err)
		}
		method, path, body := line[1], line[2], ""
		header := []string{"X-Request-Id: r-1"}
		for _, word := range line[3:] {
			if strings.Contains(word, ": ") {
				header = append(header, word)
			} else {
				body = word
				kind := "application/x-www-form-urlencoded"
				if word[0] == '{' {
					kind = "application/json"
				}
				header = append(header, "Content-Type: "+kind)
			}
		}
		for range times {
			want, got := do(t, method, gateway.URL+path, body, header...), do(t, method, with+path, body, header...)
			statuses[got.status]++
			wantText, wantTimes := want.text()
			gotText, gotTimes := got.text()
			slack := int(time.Since(began)/time.Second) + 2 // the two decide at different times
			near := len(wantTimes) == len(gotTimes)
			for i := range wantTimes {
				near = near && max(wantTimes[i]-gotTimes[i], gotTimes[i]-wantTimes[i]) <= slack
			}
			if got.status == want.status && path == "/boom" && got.status == http.StatusInternalServerError && !around {
				continue
			}
			if gotText != wantText || !near {
				t.Errorf("%s: the middleware sends\n%s%v\nthe gateway\n%s%v", strings.Join(line, " "), gotText, gotTimes, wantText, wantTimes)
			}
		}
	}
	for _, status := range []int{200, 400, 401, 403, 404, 429, 500} {
		if statuses[status] == 0 {
			t.Errorf("premise: no response has status %d", status)
		}
	}
}

// application is one of testdata, in a framework on a server. around means that the middleware sees the responses
// to exceptions, too.
type application struct {
	module, server, target string
	around                 bool
}

// Clients get the same responses, whether the gateway or the middleware enforces the limits.
func TestSameAsGateway(t *testing.T) {
	t.Parallel()
	allSame(t, []application{
		{"fastapi", "uvicorn", "fastapi_app:app", false},
		{"flask", "waitress", "flask_app:app", true},
	})
}

func allSame(t *testing.T, applications []application) {
	for _, a := range applications {
		t.Run(a.target, func(t *testing.T) {
			t.Parallel()
			needs(t, a.module, a.server)
			same(t, a.server, a.target, a.around)
		})
	}
}
