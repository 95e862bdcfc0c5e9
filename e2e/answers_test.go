package e2e

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// The example of answers of one's own, behind a trusted proxy and with a lower limit.
func TestAnswers(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, page := filepath.Join(dir, "api.yaml"), filepath.Join(dir, "slow-down.html")
	for _, path := range []string{file, page} {
		text, err := os.ReadFile(filepath.Join("../examples/answers", filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		overwrite(t, path, strings.NewReplacer("version: 1", "version: 1\ntrusted_proxies: [127.0.0.1]\ncors: {origins: [https://app.example.com]}", "100/minute", "1/day").Replace(string(text)))
	}
	g := serve(t, "--policy", file, "--upstream", "sample")
	ask := func(method, client, accept string) (*http.Response, string) {
		t.Helper()
		return do(t, request(t, method, g.url+"/health", "", "X-Forwarded-For", client, "Accept", accept, "Origin", "https://app.example.com"))
	}
	if resp, _ := ask("GET", "192.0.2.1", browser); resp.StatusCode != 200 || resp.Header.Get("X-Support") != "" {
		t.Fatalf("the first request gets %d %v", resp.StatusCode, resp.Header)
	}

	resp, body := ask("GET", "192.0.2.1", browser)
	if !strings.Contains(body, `<meta http-equiv="refresh" content="`+resp.Header.Get("Retry-After")+`">`) || !strings.Contains(body, "You may send 1 requests.") {
		t.Errorf("the page is %s", body)
	}
	for name, want := range map[string]string{
		"Content-Type": "text/html; charset=utf-8", "Content-Length": strconv.Itoa(len(body)), "Cache-Control": "no-store", "X-Support": "https://example.com/limits",
		"X-Ratelimit-Limit": "1", "X-Ratelimit-Remaining": "0", "Ratelimit-Policy": `"per-address";q=1;w=86400`, "Access-Control-Allow-Origin": "https://app.example.com",
		"Vary": "Origin, Accept",
	} {
		if got := strings.Join(resp.Header[name], ", "); resp.StatusCode != 503 || got != want {
			t.Errorf("%d, %s: %q, want %q", resp.StatusCode, name, got, want)
		}
	}
	if exposed := strings.Join(resp.Header["Access-Control-Expose-Headers"], ", "); !strings.HasSuffix(exposed, "X-Support") || !strings.Contains(exposed, "Retry-After") {
		t.Errorf("pages may read %s", exposed)
	}
	if head, nothing := ask("HEAD", "192.0.2.1", browser); head.StatusCode != 503 || nothing != "" || head.Header.Get("Content-Type") != "text/html; charset=utf-8" || head.ContentLength < 100 {
		t.Errorf("HEAD: %d %v %q", head.StatusCode, head.Header, nothing)
	}

	resp, body = ask("GET", "192.0.2.1", "*/*")
	var own struct {
		Code, Wait int
		Rule       string
	}
	if err := json.Unmarshal([]byte(body), &own); err != nil || own.Code != 503 || own.Rule != "per-address" || strconv.Itoa(own.Wait) != resp.Header.Get("Retry-After") {
		t.Errorf("%v: %s %v", err, body, resp.Header)
	}
	if resp, body = ask("GET", "192.0.2.1", "application/problem+json"); resp.StatusCode != 503 || !strings.Contains(body, `"title":"Service Unavailable","status":503,`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
	if resp, body = ask("GET", "198.51.100.1", browser); resp.StatusCode != 403 || !strings.Contains(body, "abuse@example.com") {
		t.Errorf("%d %s", resp.StatusCode, body)
	}

	overwrite(t, page, "<p>other {{.Rule}}")
	g.await("the page is followed", loaded)
	if _, body = ask("GET", "192.0.2.1", browser); body != "<p>other per-address" {
		t.Errorf("the new page is %s", body)
	}
	g.forget()
	overwrite(t, page, "<p>\n{{.Rulle}}")
	g.await("the broken one is refused, with its line", func(r record) bool {
		return refused(r) && strings.HasPrefix(r.Problem, page+":2: ") && strings.Contains(r.Problem, `did you mean ".Rule"?`)
	})
	if _, body = ask("GET", "192.0.2.1", browser); body != "<p>other per-address" {
		t.Errorf("after a broken page it is %s", body)
	}
}

// What is malformed, and what the store cannot decide, has answers, too.
func TestAnswersWithoutLimit(t *testing.T) {
	t.Parallel()
	policy := write(t, "policy.yaml", `version: 1
answers:
  400: {status: 422, type: text/html, body: "<p>{{.Error}}: {{.Detail}}"}
  503: {type: text/html, body: "<p>{{.Rule}} is away, come back in {{.RetryAfter}}"}
rules:
  - {name: login, match: /login, limit: 5/minute, on_error: deny}
  - {name: signed, match: /signed, key: [header:X-API-Key], missing: refuse, limit: 5/minute}
`)
	g := serve(t, "--policy", policy, "--upstream", "sample", "--store", "redis://127.0.0.1:1")
	for path, want := range map[string]string{
		"/login":  "503 <p>login is away, come back in 1",
		"/signed": "422 <p>missing_key: The request lacks header:X-API-Key.",
		"/#":      "422 <p>malformed_request: The request target must not have a fragment.",
	} {
		r := request(t, "GET", g.url+path, "", "Accept", browser)
		if path == "/#" {
			r.URL.Opaque = "/#" // as no client of Go writes it otherwise
		}
		if resp, body := do(t, r); strconv.Itoa(resp.StatusCode)+" "+body != want {
			t.Errorf("%s: %d %s, want %s", path, resp.StatusCode, body, want)
		}
	}
}
