//go:build long

package doors

import (
	"bufio"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

// block returns the only code block of a language on a page.
func block(t *testing.T, page, language string) string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(found) != 1 {
		t.Fatalf("%s has %d blocks of %s, want one", page, len(found), language)
	}
	return found[0][1]
}

// swap replaces texts. Each of them must occur.
func swap(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("%q is missing in\n%s", pairs[i], text)
		}
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// logged is a line of nginx's log.
type logged struct {
	at      time.Time // when the request arrived, to the millisecond
	took    time.Duration
	path    string
	refused bool
}

// slack is how far nginx's decisions may be from its log: it reads two clocks in milliseconds, and counts in
// thousandths of a request.
const slack = 10 * time.Millisecond

// The policy of docs/migrating.md decides about the requests in nginx's log, at the times in the log, as nginx's
// limit_req did.
func TestLongMigrateNginx(t *testing.T) {
	t.Parallel()
	const page = "../../../docs/migrating.md"
	addr, log := testkit.Addr(t), filepath.Join(t.TempDir(), "access.log")
	url := nginx(t, addr, "log_format times '$msec $request_time $uri $status';\n"+
		swap(t, block(t, page, "nginx"), "listen 80;", "listen "+addr+"; access_log "+log+" times;", "http://backend", "http://"+backend(t)))
	sent := 0
	send := func(n int, path string) {
		t.Helper()
		for range n {
			if got := ask(t, "GET", url+path, ""); got.status != http.StatusOK && got.status != http.StatusTooManyRequests {
				t.Fatalf("%s: status %d", path, got.status)
			}
			sent++
		}
	}
	atOnce := func(n int, path string) {
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if r, err := http.Get(url + path); err == nil {
					r.Body.Close()
				}
			})
		}
		all.Wait()
		sent += n
	}
	// Bursts, pauses in which part of the limit comes back, and requests at the rate at which it comes back, until
	// nginx has let pass, delayed and denied enough requests to compare.
	var requests []logged
	testkit.Await(t, "nginx has let pass, delayed and denied enough requests", func() bool {
		for _, pause := range []time.Duration{0, 130, 70, 410, 850} {
			time.Sleep(pause * time.Millisecond)
			send(14, "/api/orders")
			send(2, "/login")
		}
		atOnce(9, "/search")
		for range 12 {
			send(1, "/api/orders")
			send(1, "/search")
			time.Sleep(110 * time.Millisecond)
		}
		atOnce(6, "/search")
		testkit.Await(t, "the log has all requests", func() bool { requests = readTimes(t, log); return len(requests) == sent })
		refused, late := 0, 0
		for _, r := range requests {
			switch {
			case r.refused:
				refused++
			case r.took > 3*slack:
				late++
			}
		}
		return len(requests)-refused >= 20 && refused >= 20 && late >= 4
	})
	rules, err := policyfile.Parse("policy.yaml", []byte(block(t, page, "yaml")))
	if err != nil {
		t.Fatal(err)
	}
	clock := &logClock{store: memory.New()}
	engine := policy.NewEngine(clock, rules)
	for i, r := range requests {
		request := func(after time.Duration) *policy.Request {
			at := r.at.Add(after)
			clock.now = at.UnixMicro()
			return &policy.Request{Path: r.path, Peer: netip.MustParseAddr("127.0.0.1"), Time: at}
		}
		// Explain charges nothing. Within slack, both decisions are right, and the policy then charges what nginx let
		// pass.
		earliest, latest := engine.Explain(t.Context(), request(-slack)).Decision, engine.Explain(t.Context(), request(slack)).Decision
		if r.refused && earliest.Allowed || !r.refused && !latest.Allowed {
			t.Fatalf("request %d, %+v: nginx and the policy do not agree: %+v, %+v", i, r, earliest.Results, latest.Results)
		}
		if r.refused {
			continue
		}
		d := engine.Decide(t.Context(), request(0))
		if !d.Allowed {
			d = engine.Decide(t.Context(), request(slack))
		}
		if r.took < d.Delay-2*slack {
			t.Errorf("request %d, %+v: want a delay of %v", i, r, d.Delay)
		}
	}
}

// readTimes returns the requests in the order in which they arrived.
func readTimes(t *testing.T, path string) (all []logged) {
	t.Helper()
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		field := strings.Fields(lines.Text())
		end, err1 := strconv.ParseFloat(field[0], 64)
		took, err2 := strconv.ParseFloat(field[1], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		r := logged{took: time.Duration(took*1000+0.5) * time.Millisecond, path: field[2], refused: field[3] == "429"}
		r.at = time.UnixMilli(int64(end*1000 + 0.5)).Add(-r.took)
		all = append(all, r)
	}
	slices.SortStableFunc(all, func(a, b logged) int {
		if c := a.at.Compare(b.at); c != 0 || a.refused == b.refused {
			return c
		}
		if a.refused { // within a millisecond, requests that fitted were first
			return 1
		}
		return -1
	})
	return all
}

// logClock is a store that uses the times of the log.
type logClock struct {
	store *memory.Store
	now   int64
}

func (c *logClock) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	return c.store.TakeAt(ctx, c.now, charges, receipts)
}
