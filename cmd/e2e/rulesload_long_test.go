//go:build long

package e2e

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/sluicehq/sluice/internal/postgrestest"
	"github.com/sluicehq/sluice/internal/redistest"
	"github.com/sluicehq/sluice/internal/testkit"
)

// loadedPolicy has limits that belong together: the two of pair, and those of left and right. The last two digits of a
// limit are the number of the change that has set it.
const loadedPolicy = `version: 1
tiers: {subject: header:X-User}
rules:
  - {name: pair, key: [header:X-User], limits: [1000000/minute, 2000000/hour], tiers: {gold: [1000900/minute, 2000900/hour]}}
  - {name: left, limit: 3000000/minute}
  - {name: right, limit: 4000000/minute}
`

// limitsTold matches the last two digits of the limits in RateLimit-Policy.
var limitsTold = regexp.MustCompile(`";q=\d+(\d\d);w=\d+`)

// loadedAnswer has the limits in an answer.
type loadedAnswer struct {
	sent, answered time.Time
	status         int
	numbers        string // the last digits of the limits: of pair twice, left, right and others
}

func (a loadedAnswer) String() string { return fmt.Sprintf("%d with %q", a.status, a.numbers) }

// whole reports whether the limits that belong together are there, and are from the same change.
func (a loadedAnswer) whole() bool {
	n := strings.Fields(a.numbers)
	return a.status == http.StatusOK && len(n) >= 4 && n[0] == n[1] && n[2] == n[3]
}

// ask sends a request of a user.
func (l *loadedFleet) ask(g *gateway, user string) (a loadedAnswer) {
	r, err := http.NewRequest("GET", g.URL+"/api/users", nil)
	if err != nil {
		l.t.Error(err)
		return a
	}
	r.Header.Set("X-User", user)
	a.sent = time.Now()
	resp, err := l.client.Do(r)
	if err != nil {
		l.t.Error(err)
		return a
	}
	resp.Body.Close()
	a.answered, a.status = time.Now(), resp.StatusCode
	var numbers []string
	for _, m := range limitsTold.FindAllStringSubmatch(strings.Join(resp.Header["Ratelimit-Policy"], ", "), -1) {
		numbers = append(numbers, m[1])
	}
	a.numbers = strings.Join(numbers, " ")
	return a
}

// loadedFleet is three instances with one database and one store. All instances get requests all the time.
type loadedFleet struct {
	t      *testing.T
	all    []*gateway
	client *http.Client
	db     *sql.DB
	asked  atomic.Int64

	others  string        // the numbers of left and right
	slowest time.Duration // the longest time from the acknowledgement of a change until all instances apply it
	changes int
}

func newLoadedFleet(t *testing.T) *loadedFleet {
	url, redis := postgrestest.Start(t).Database(), redistest.Start(t)
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	l := &loadedFleet{t: t, others: "00 00", client: newClient(t), db: db}
	args := append([]string{"--upstream", "sample", "--policy", testkit.File(t, "policy.yaml", loadedPolicy), "--rules", url, "--store", redis.URL()}, patientStore...)
	for range 3 {
		l.all = append(l.all, serve(t, args...))
	}
	return l
}

// load sends requests to all instances, at a low rate, until the test ends. No answer may mix limits from before and
// after a change.
func (l *loadedFleet) load() {
	ended := make(chan struct{})
	var loading sync.WaitGroup
	for i, g := range l.all {
		loading.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-ended:
					return
				case <-tick.C:
				}
				for _, user := range []string{"anybody", "vip", "member"} {
					if a := l.ask(g, user); !a.whole() {
						l.t.Errorf("instance %d answers %s with %v", i, user, a)
					}
					l.asked.Add(1)
				}
			}
		})
	}
	l.t.Cleanup(func() { close(ended); loading.Wait() })
}

// await waits until all instances answer a user with a status and with these limits of pair. A change has just been
// acknowledged by an instance, which must apply it at once, or by the database, if by is negative.
func (l *loadedFleet) await(by int, user string, status int, numbers string) {
	l.t.Helper()
	want := fmt.Sprintf("%d with %q", status, strings.TrimSpace(numbers+" "+l.others))
	has := func(g *gateway) bool {
		a := l.ask(g, user)
		return a.String() == want || status != http.StatusOK && a.status == status
	}
	acknowledged := time.Now()
	if by >= 0 && !has(l.all[by]) {
		l.t.Errorf("instance %d has acknowledged a change, and does not answer %s with %s", by, user, want)
	}
	for i, g := range l.all {
		testkit.Await(l.t, fmt.Sprintf("instance %d answers %s with %s", i, user, want), func() bool { return has(g) })
	}
	took := time.Since(acknowledged)
	if l.slowest = max(l.slowest, took); fleetTime > 0 && took > time.Second {
		l.t.Errorf("it took %v until all answered %s with %s", took, user, want)
	}
	l.changes++
}

// change sends a change to an instance, and returns the response, which must not be an error.
func (l *loadedFleet) change(by int, method, path, body string, header ...string) *http.Response {
	l.t.Helper()
	resp, text := do(l.t, request(l.t, method, l.all[by].Admin+path, body, append(header, "Content-Type", "application/json")...))
	if resp.StatusCode >= 300 {
		l.t.Fatalf("%s %s: %s %s", method, path, resp.Status, text)
	}
	return resp
}

// put replaces a resource.
func (l *loadedFleet) put(by int, path, body string) {
	l.t.Helper()
	resp, _ := do(l.t, request(l.t, "GET", l.all[by].Admin+path, ""))
	l.change(by, "PUT", path, body, "If-Match", resp.Header.Get("ETag"))
}

// fleetTime is the duration of the long form, in which every change has to be in force within a second. The short form
// only reports how long this took.
var fleetTime, _ = time.ParseDuration(os.Getenv("SLUICE_FLEET"))

// Changes through one instance, or by SQL, take effect on all instances, under load and as a whole. The instance that
// has acknowledged a change applies it at once. "make fleet" runs the long form.
func TestLongRulesUnderLoad(t *testing.T) {
	if fleetTime == 0 {
		t.Parallel()
	}
	l := newLoadedFleet(t)
	for begin, round := time.Now(), 1; round == 1 || time.Since(begin) < fleetTime; round++ {
		t.Run("", func(t *testing.T) {
			l.t = t
			l.load()
			n := round%70 + 10
			l.rules(n)
			l.overrides(n)
			l.tiers(n)
			l.ending(n)
		})
	}
	t.Logf("%d changes under %d decisions; the slowest was in force everywhere %v after its acknowledgement", l.changes, l.asked.Load(), l.slowest)
}

// rules changes limits that belong together, creates a rule and deletes it.
func (l *loadedFleet) rules(n int) {
	l.t.Helper()
	both := fmt.Sprintf("%d %[1]d", n)
	l.put(0, "/v1/rules/pair", fmt.Sprintf(`{"name": "pair", "key": ["header:X-User"], "limits": ["10000%d/minute", "20000%[1]d/hour"], "tiers": {"gold": ["1000099/minute", "2000099/hour"]}}`, n))
	l.await(0, "a", http.StatusOK, both)
	tx, err := l.db.Begin()
	if err != nil {
		l.t.Fatal(err)
	}
	for i, name := range []string{"left", "right"} {
		text := fmt.Sprintf(`INSERT INTO sluice_rules (name, position, document) VALUES ('%s', %d, '{"limit": "%d0000%d/minute"}') ON CONFLICT (name) DO UPDATE SET document = excluded.document`, name, 1000+i, 3+i, n)
		if _, err := tx.Exec(text); err != nil {
			l.t.Fatal(err)
		}
		if a := l.ask(l.all[i], "a"); !a.whole() || strings.HasSuffix(a.numbers, both) {
			l.t.Errorf("in the middle of a transaction instance %d answers %v", i, a)
		}
	}
	if err := tx.Commit(); err != nil {
		l.t.Fatal(err)
	}
	l.others = both
	l.await(-1, "a", http.StatusOK, both)
	etag := l.change(1, "POST", "/v1/rules", fmt.Sprintf(`{"name": "more", "limit": "50000%d/minute"}`, n)).Header.Get("ETag")
	l.others += fmt.Sprintf(" %d", n)
	l.await(1, "a", http.StatusOK, both)
	l.change(2, "DELETE", "/v1/rules/more", "", "If-Match", etag)
	l.others = both
	l.await(2, "a", http.StatusOK, both)
}

// overrides sets an override and deletes it through another instance, and blocks a user for a while.
func (l *loadedFleet) overrides(n int) {
	l.t.Helper()
	both := fmt.Sprintf("%d %[1]d", n)
	vip := l.change(1, "POST", "/v1/overrides", `{"rule": "pair", "key": {"header:X-User": "vip"}, "limits": ["1000098/minute", "2000098/hour"]}`)
	l.await(1, "vip", http.StatusOK, "98 98")
	path := vip.Header.Get("Location")
	vip = l.change(2, "PUT", path, `{"rule": "pair", "key": {"header:X-User": "vip"}, "limits": ["1000097/minute", "2000097/hour"]}`, "If-Match", vip.Header.Get("ETag"))
	l.await(2, "vip", http.StatusOK, "97 97")
	made := l.change(0, "POST", "/v1/overrides", `{"rule": "pair", "key": {"header:X-User": "gone"}, "limits": ["1000096/minute", "2000096/hour"]}`)
	l.change(1, "DELETE", made.Header.Get("Location"), "", "If-Match", made.Header.Get("ETag")) // this instance may not know the override yet
	l.await(1, "gone", http.StatusOK, both)
	subject := `{"rule": "pair", "key": {"header:X-User": "villain"}`
	l.change(1, "POST", "/v1/subjects/block", subject+`, "until": "2126-12-31"}`)
	l.await(1, "villain", http.StatusForbidden, "")
	l.change(2, "POST", "/v1/subjects/unblock", subject+"}")
	l.await(2, "villain", http.StatusOK, both)
	l.change(1, "DELETE", path, "", "If-Match", vip.Header.Get("ETag"))
	l.await(1, "vip", http.StatusOK, both)
}

// tiers changes the limits of a tier with a member.
func (l *loadedFleet) tiers(n int) {
	l.t.Helper()
	made := l.change(2, "POST", "/v1/subjects", `{"subject": "member", "tier": "gold"}`)
	l.await(2, "member", http.StatusOK, "99 99")
	l.put(1, "/v1/tiers/gold", fmt.Sprintf(`{"limits": {"pair": ["10000%d/minute", "20000%[1]d/hour"]}}`, n+1))
	l.await(1, "member", http.StatusOK, fmt.Sprintf("%d %[1]d", n+1))
	l.put(1, "/v1/tiers/gold", `{"limits": {"pair": ["1000099/minute", "2000099/hour"]}}`)
	l.await(1, "member", http.StatusOK, "99 99")
	l.change(0, "DELETE", "/v1/subjects/member", "", "If-Match", made.Header.Get("ETag"))
	l.await(0, "member", http.StatusOK, fmt.Sprintf("%d %[1]d", n))
}

// ending puts a user into a tier for a short time. The user must leave the tier at the end of this time, and not
// before. If an instance is too slow to notice the tier, ending tries again with more time.
func (l *loadedFleet) ending(n int) {
	l.t.Helper()
	for span := 2 * time.Second; ; span *= 2 {
		user, until := fmt.Sprintf("trial-%d-%v", n, span), time.Now().Add(span).Truncate(time.Millisecond)
		l.change(0, "POST", "/v1/subjects", fmt.Sprintf(`{"subject": %q, "tier": "gold", "until": %q}`, user, until.UTC().Format("2006-01-02T15:04:05.000Z")))
		if l.endsAt(user, until, fmt.Sprintf("%d %[1]d %s", n, l.others)) {
			return
		}
	}
}

// endsAt sends requests until the user has left the tier on all instances, and reports whether all of them have noticed
// the tier.
func (l *loadedFleet) endsAt(user string, until time.Time, after string) bool {
	l.t.Helper()
	seen := 0
	for i, g := range l.all {
		had := false
		testkit.Await(l.t, "the tier of "+user+" ends", func() bool {
			a := l.ask(g, user)
			gold := strings.HasPrefix(a.numbers, "99 99 ")
			switch {
			case had && !gold && a.answered.Before(until), gold && a.sent.After(until), !gold && a.numbers != after:
				l.t.Errorf("instance %d answers %v, asked %v before the end of the tier", i, a, until.Sub(a.sent))
			}
			had = had || gold
			return a.sent.After(until) && !gold || had && i < len(l.all)-1
		})
		if had {
			seen++
		}
	}
	return seen == len(l.all)
}
