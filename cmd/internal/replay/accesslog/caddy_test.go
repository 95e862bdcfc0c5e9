package accesslog

import (
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// Entries from Caddy's logs of hostile requests have the values that were sent, with U+FFFD for bytes that are not
// UTF-8. Each site logs in another format of times.
func TestCaddy(t *testing.T) {
	t.Parallel()
	program, err := testkit.BuildModule("caddy", "cmd/e2e/doors/testdata/caddy", ".")
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]string{}
	for _, site := range []string{"ASIS", "WORDS", "ISO", "LOCAL", "MILLIS", "NANOS", "COMMON"} {
		ports[site] = strconv.Itoa(testkit.Port(t))
	}
	dir, _, _ := serving(t, "Caddyfile", "XYZ-5:30", ports, program, "run", "--adapter", "caddyfile", "--config", "FILE")
	// Caddy does not log unreadable requests, and logs the text "-" unchanged.
	requests := slices.DeleteFunc(hostileRequests(), func(a asked) bool { return a.method == "" || a.fields.referer == "-" })
	requests = append(requests, asked{
		raw: "GET /key HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX-Forwarded-For: \", \"\r\n" +
			"X-API-Key: REDACTED\r\nCookie: a=\"b\", c\xff\r\n\r\n",
		method: "GET", target: "/key", fields: fields{host: "a", forwarded: `", "`},
	})
	for site, port := range ports {
		address := "127.0.0.1:" + port
		testkit.Await(t, site+" listens", func() bool { return testkit.Listens(address) })
		var line []byte
		var f *Format
		n := 0
		for _, a := range requests {
			begin := time.Now()
			status, body := send(t, address, a.raw)
			if status == http.StatusBadRequest { // Caddy refuses the request with control characters
				continue
			}
			line = logged(t, filepath.Join(dir, strings.ToLower(site)+".log"), n)
			var err error
			if f, err = Detect([][]byte{line}, Options{}); err != nil || f.Name != "caddy" {
				t.Fatalf("%s: %v, %v", line, f, err)
			}
			a.fields.user = "" // without a check of passwords, Caddy logs no user
			for _, text := range []*string{&a.target, &a.fields.agent, &a.fields.referer, &a.fields.forwarded} {
				*text = string([]rune(*text))
			}
			a.check(t, f, line, status, body, begin)
			n++
		}
		if n != len(requests)-1 {
			t.Errorf("%s: %d requests of %d were logged", site, n, len(requests))
		}
		var e Entry // the last entry
		if err := f.Parse(line, &e); err != nil {
			t.Fatal(err)
		}
		for field, want := range map[string]string{"X-Api-Key": "REDACTED", "Cookie": "a=\"b\", c\ufffd"} {
			if !slices.ContainsFunc(e.Headers, func(h Field) bool { return string(h.Name) == field && string(h.Value) == want }) {
				t.Errorf("%s: want the header %s with %q", line, field, want)
			}
		}
	}
}
