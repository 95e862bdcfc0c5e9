//go:build long

package frameworks

import (
	_ "embed"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicehq/sluice/internal/seed"
	"github.com/sluicehq/sluice/internal/testkit"
)

// corpus contains requests that once evaded a limit, quoted as in Go, one on each line.
//
//go:embed testdata/corpus.txt
var corpus string

// short is the number of odd requests to each upstream in the short form, which always sends the same requests.
// SLUICE_DIFFERENTIAL, a duration, selects the long form, which has a random seed: it prints the requests that evade a
// limit, and these belong in the corpus. SLUICE_SEED repeats a seed.
const short = 100

func TestLongFrameworks(t *testing.T) {
	p := planned(t)
	t.Logf("the seed is %d", p.seed)
	n := 0
	var left []string
	for _, program := range programs {
		if !program.there() {
			left = append(left, program.names...)
			continue
		}
		n++
		t.Run(program.names[0], func(t *testing.T) {
			t.Parallel()
			var started []*upstream
			turn(func() { started = program.start(t) })
			for _, u := range started {
				t.Run(u.name, func(t *testing.T) {
					t.Parallel()
					run(t, u, p)
				})
			}
		})
	}
	if len(left) > 0 {
		t.Run("the others", func(t *testing.T) { testkit.Missing(t, strings.Join(left, ", ")) })
	}
}

// planned returns the plan that the environment selects.
func planned(t *testing.T) plan {
	p := plan{seed: seed.Of(t), each: short}
	if s := os.Getenv("SLUICE_DIFFERENTIAL"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		if p.until = time.Now().Add(d); os.Getenv("SLUICE_SEED") == "" {
			p.seed = rand.Uint64() >> 16
		}
	}
	return p
}

// A plan is the number of odd requests to an upstream, or the time for them.
type plan struct {
	seed  uint64
	each  int
	until time.Time // if set, used instead of each
}

// more reports whether to send another request after n.
func (p plan) more(n int) bool {
	if p.until.IsZero() {
		return n < p.each
	}
	return time.Now().Before(p.until)
}

// A hunt looks for ways past the limits in front of one upstream.
type hunt struct {
	*testing.T
	upstream *upstream
	gateways []string // one for each of modes
	sent     int
	found    map[string]int // number of reports, by the idioms of the bypass
	statuses map[int]int
}

func run(t *testing.T, u *upstream, p plan) {
	h := &hunt{T: t, upstream: u, found: map[string]int{}, statuses: map[int]int{}}
	turn(func() {
		for _, mode := range modes {
			h.gateways = append(h.gateways, gateway(t, u.addr, fmt.Sprintf(policyText, u.ignoreCase, mode)))
		}
		h.premise()
		h.spend()
		for _, raw := range known(t) {
			h.try(sized(raw))
		}
	})
	h.random(newGrammar(p.seed), p)
	t.Logf("%d requests, by status %v", h.sent, h.statuses)
}

// turns bounds how many upstreams are started or queried at once.
var turns = make(chan struct{}, 4)

func turn(f func()) {
	turns <- struct{}{}
	defer func() { <-turns }()
	f()
}

// known returns the requests of the corpus.
func known(t *testing.T) (all []string) {
	for line := range strings.Lines(corpus) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		raw, err := strconv.Unquote(line)
		if err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, raw)
	}
	return all
}

// random sends odd requests, a batch in each turn.
func (h *hunt) random(g grammar, p plan) {
	for n := 0; p.more(n); n += batch {
		turn(func() {
			for range batch {
				h.try(g.request())
			}
		})
	}
}

const batch = 50

// try sends a request through the gateway of each mode, and reports it if it is a way past a limit.
func (h *hunt) try(raw string) {
	for i, mode := range modes {
		h.tryAt(i, mode, raw)
	}
}

func (h *hunt) tryAt(i int, mode, raw string) {
	ways := h.send(i, raw)
	for _, b := range ways {
		if h.found[b.idioms()] >= enough {
			continue
		}
		small := shrink(raw, func(raw string) bool { return slices.Contains(h.send(i, raw), b) })
		h.Errorf("%s (ambiguous: %s): a login is reached of which nothing is left: %s\n%s", h.upstream.name, mode, b, strconv.Quote(small))
		for _, b := range ways {
			h.found[b.idioms()]++
		}
		return
	}
}

// enough is the number of reports of the same idioms.
const enough = 3

// send sends a request and returns the ways past a limit that the upstream shows.
func (h *hunt) send(i int, raw string) (all []bypass) {
	h.Helper()
	h.sent++
	status := send(h.gateways[i], fresh(raw, h.sent), hurry)
	h.statuses[status]++
	for _, l := range h.lines() {
		all = append(all, bypasses(l, h.upstream.ignoreCase)...)
	}
	return all
}

func (h *hunt) lines() []line {
	h.Helper()
	lines, err := h.upstream.lines()
	if err != nil {
		h.Fatal(err)
	}
	return lines
}

// premise checks that each idiom reads well-formed requests, and that the limits hold for them.
func (h *hunt) premise() {
	h.Helper()
	for idiom, works := range h.idioms() {
		if !works {
			h.Errorf("%s: %q reads nothing of a plain login", h.upstream.name, idiom)
		}
	}
	for i := range h.gateways {
		for kind, part := range reads {
			h.twice(i, kind, part, "form")
			if part == "body" {
				h.twice(i, kind, part, "json")
				h.twice(i, kind, part, "query")
			}
		}
	}
	h.lines()
}

// twice checks that the first of two plain logins passes, and that the second is denied.
func (h *hunt) twice(i int, kind, part, form string) {
	h.Helper()
	raw := fresh(plain(kind, part, form, decoyA), 0)
	first, second := send(h.gateways[i], raw, patience), send(h.gateways[i], raw, patience)
	if first == 0 || first == http.StatusTooManyRequests || second != http.StatusTooManyRequests {
		h.Errorf("%s: two plain logins (%s, %s) are answered %d and %d", h.upstream.name, kind, form, first, second)
	}
}

// spend uses up all limits.
func (h *hunt) spend() {
	h.Helper()
	for i := range h.gateways {
		for kind, part := range reads {
			for _, name := range accounts {
				raw := plain(kind, part, "form", name)
				send(h.gateways[i], raw, patience)
				if status := send(h.gateways[i], raw, patience); status != http.StatusTooManyRequests {
					h.Fatalf("%s: a second login of %s (%s) is answered %d", h.upstream.name, name, kind, status)
				}
			}
			send(h.gateways[i], plain(kind, part, "form", ""), patience)
			send(h.gateways[i], unclear(kind), patience)
		}
	}
	h.lines()
}

// idioms sends plain logins directly to the upstream, and returns which idioms read them.
func (h *hunt) idioms() map[string]bool {
	works := map[string]bool{}
	for kind, part := range reads {
		for _, form := range []string{"form", "json", "multipart", "query"} {
			send(h.upstream.addr, plain(kind, part, form, decoyA), patience)
			for _, l := range h.lines() {
				for idiom, value := range l.Took {
					works[idiom] = works[idiom] || value != nil && slices.Contains([]string{decoyA, "login.test", "/" + kind + "/login"}, *value)
				}
			}
		}
	}
	return works
}
