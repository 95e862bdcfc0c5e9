package doors

import (
	"net/http"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
)

// exported returns the configuration that "sluice export nginx" makes of a policy, with a server on addr.
func exported(t *testing.T, addr, policy string) string {
	t.Helper()
	out, err := command(testkit.Binary(t), "export", "nginx", "--policy", testkit.File(t, "policy.yaml", policy)).Output()
	if err != nil {
		t.Fatal(err)
	}
	// The server needs a backend: "return" would be executed before limit_req.
	return string(out) + "server { listen " + addr + "; location / { proxy_pass http://" + backend(t) + "; } }\n"
}

// limited reports whether nginx denies a request.
func limited(t *testing.T, url string, header ...string) bool {
	t.Helper()
	switch got := ask(t, "GET", url+"/", "", header...); got.status {
	case http.StatusOK:
		return false
	case http.StatusTooManyRequests:
		return true
	default:
		t.Fatalf("status %d", got.status)
		return false
	}
}

// nginx lets as many requests pass as the policy's algorithm does: the burst at once, then no more than the rate, and
// the next request after the time of one unit. If the test is slow, more requests may pass.
func TestExportNginx(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, rule string
		burst      int
		every      time.Duration
	}{
		{"token bucket", "limit: 4/second burst 5", 5, 250 * time.Millisecond},
		{"of one", "limit: 4/second burst 1", 1, 250 * time.Millisecond},
		{"by minutes", "limit: 90/minute burst 3", 3, 660 * time.Millisecond}, // 91r/m
		{"log", "limit: 3/second, algorithm: sliding_window_log", 3, 334 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			addr := testkit.Addr(t)
			url := nginx(t, addr, exported(t, addr, "version: 1\nrules:\n  - {name: a, key: [client_ip], "+test.rule+"}\n"))
			passed, began := 0, time.Now()
			for range 3 {
				for passed < 1000 && !limited(t, url) {
					passed++
				}
				if most := test.burst + 1 + int(time.Since(began)/test.every); passed < test.burst || passed > most {
					t.Errorf("%d passed, want %d to %d", passed, test.burst, most)
				}
				time.Sleep(test.every + 100*time.Millisecond) // nginx reads a coarse clock
				if limited(t, url) {
					t.Errorf("after %v the next request is still denied", test.every)
				}
				passed++
			}
		})
	}
}

// Requests in the queue wait for their turn.
func TestExportNginxQueue(t *testing.T) {
	t.Parallel()
	addr := testkit.Addr(t)
	url := nginx(t, addr, exported(t, addr, "version: 1\nrules:\n  - {name: a, key: [client_ip], limit: 10/second burst 4, algorithm: leaky_bucket}\n"))
	began := time.Now()
	answers := make(chan bool)
	for range 4 {
		go func() { answers <- limited(t, url) }()
	}
	for range 4 {
		if <-answers {
			t.Error("one of four requests was denied, and the queue holds four")
		}
	}
	if took := time.Since(began); took < 290*time.Millisecond {
		t.Errorf("the fourth request passed after %v", took)
	}
}

// nginx takes the client's address from X-Forwarded-For only as far as the policy trusts the proxies. It accepts the
// export of every kind of rule.
func TestExportNginxTrusted(t *testing.T) {
	t.Parallel()
	addr := testkit.Addr(t)
	url := nginx(t, addr, exported(t, addr, `
version: 1
trusted_proxies: [127.0.0.0/8, '2001:db8::1']
rules:
  - {name: a, key: [client_ip], limit: 1/minute}
  - {name: health, match: GET /health, exempt: true}
  - {name: several, key: [client_ip], limits: [10/second burst 20, 100/minute]}
  - {name: with.dots-and-more, key: [client_ip], limit: 5/minute}
  - {name: all, limit: 1000/second}
  - {name: month, key: [client_ip], limit: 50/month}
  - {name: keys, key: [api_key], missing: skip, limit: 50/minute}
`))
	for _, test := range []struct {
		forwarded string
		limited   bool
	}{
		{"192.0.2.1", false}, {"192.0.2.2", false}, {"192.0.2.1", true},
		{"198.51.100.1, 192.0.2.1", true}, {"192.0.2.2, 127.0.0.9", true}, {"192.0.2.1, 192.0.2.3", false},
	} {
		if got := limited(t, url, "X-Forwarded-For", test.forwarded); got != test.limited {
			t.Errorf("for %s: limited %v", test.forwarded, got)
		}
	}
}
