package recent

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func decode(t testing.TB, text string) *policy.Document {
	t.Helper()
	doc, err := policyfile.Decode("test.yaml", []byte("version: 1\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return &doc
}

func engineOf(t testing.TB, doc *policy.Document) *policy.Engine {
	t.Helper()
	p, err := policy.Compile(*doc)
	if err != nil {
		t.Fatal(err)
	}
	return policy.NewEngine(memory.New(), p)
}

// live is an engine that is in force beside the one that is watched, and what it has decided.
type live struct {
	name    string
	doc     *policy.Document
	engine  *policy.Engine
	allowed []bool
}

// An hour of traffic is put to the policy in force and to twenty changed ones at the same time, all from empty counters. What
// a trial says of a change is what the changed policy has decided, request by request.
func TestTrialIsWhatTheEngineDoes(t *testing.T) {
	t.Parallel()
	sections := testkit.Sections(t, "testdata/changes.txt")
	synctest.Test(t, func(t *testing.T) {
		var all []*live
		for i, s := range sections {
			text := s.Text
			if i > 0 {
				text = changed(t, sections[0].Text, s.Text)
			}
			doc := decode(t, text)
			all = append(all, &live{name: s.Name, doc: doc, engine: engineOf(t, doc)})
		}
		if len(all) != 21 {
			t.Fatalf("%d policies", len(all))
		}
		now := all[0]
		ring := Watch(now.engine, 8<<20)
		r := rand.New(rand.NewPCG(31, 1))
		for begin := time.Now(); time.Since(begin) < time.Hour-time.Minute; {
			time.Sleep(time.Duration(1+r.IntN(600_000)) * time.Microsecond)
			q := traffic(r)
			for _, l := range all {
				own := q
				l.allowed = append(l.allowed, l.engine.Decide(t.Context(), &own).Allowed)
			}
		}
		for _, l := range all[1:] {
			if err := l.compare(t, ring, now); err != nil {
				t.Errorf("%s: %v", l.name, err)
			}
		}
	})
}

// compare compares a trial of the change to l with what l and the policy in force have decided.
func (l *live) compare(t *testing.T, ring *Ring, now *live) error {
	var want Change
	for i := range l.allowed {
		switch {
		case now.allowed[i] && !l.allowed[i]:
			want.Newly++
		case l.allowed[i] && !now.allowed[i]:
			want.Freed++
		}
	}
	got, err := ring.Try(t.Context(), now.doc, l.doc)
	if err != nil {
		return err
	}
	if len(got.NotJudged) > 0 || len(got.Notes) > 0 || got.Differs != 0 {
		return fmt.Errorf("%s", encoded(t, got))
	}
	if got.Change != want || want == (Change{}) || got.Requests != int64(len(l.allowed)) {
		return fmt.Errorf("want %+v of %d requests: %s", want, len(l.allowed), encoded(t, got))
	}
	return l.compareEach(t, ring, now)
}

func (l *live) compareEach(t *testing.T, ring *Ring, now *live) error {
	tried := &trial{ring: ring, chunks: ring.chunks()}
	tried.begin(now.doc, l.doc)
	p, err := tried.newPass(false)
	if err != nil {
		return err
	}
	records := newMerger(tried.chunks)
	for i := range l.allowed {
		if p.reader = records.next(); p.reader == nil {
			return fmt.Errorf("%d of %d requests are kept", i, len(l.allowed))
		}
		p.decide(t.Context())
		if before, after := p.sides[0].decision.Allowed, p.sides[1].decision.Allowed; before != now.allowed[i] || after != l.allowed[i] {
			return fmt.Errorf("request %d: tried %v and %v, and decided %v and %v", i, before, after, now.allowed[i], l.allowed[i])
		}
	}
	return nil
}

func encoded(t testing.TB, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// traffic returns a request as one of some clients makes it.
func traffic(r *rand.Rand) policy.Request {
	n := r.IntN(r.IntN(30) + 1)
	q := policy.Request{
		Method: "GET", Host: "api.example.com", Path: "/items/" + fmt.Sprint(r.IntN(50)),
		Peer: netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), Header: http.Header{}, Door: "gateway",
	}
	if n%3 == 0 {
		q.Header.Set("X-Api-Key", fmt.Sprintf("k-%04d-secret", n))
	}
	if n%5 == 0 {
		q.Header.Set("X-Plan", []string{"pro", "free"}[n%2])
	}
	if n%7 == 0 {
		q.Header.Set("X-Cost", fmt.Sprint(1+r.IntN(4)))
	}
	switch r.IntN(5) {
	case 0:
		q.Method, q.Path = "POST", "/login"
		body := fmt.Sprintf(`{"username":"User%d","password":"p"}`, r.IntN(20))
		q.Header.Set("Content-Type", "application/json")
		q.Body = func(int64) ([]byte, error) { return []byte(body), nil }
	case 1:
		q.Path, q.RawQuery = "/search", "q="+[]string{"a", "B", "b", "c"}[r.IntN(4)]
	case 2:
		q.Path = "/static/logo.png"
	}
	return q
}

// changed returns a text with the lines that begin with "+" in place of the text behind "-" before them.
func changed(t testing.TB, base, change string) string {
	t.Helper()
	for _, one := range strings.Split("\n"+strings.TrimSpace(change), "\n-")[1:] {
		was, is, _ := strings.Cut(one, "\n")
		was = strings.TrimSpace(was)
		if !strings.Contains(base, was) {
			t.Fatalf("the policy has no %q", was)
		}
		var lines []string
		for line := range strings.Lines(is) {
			lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "+"), " "))
		}
		base = strings.Replace(base, was, strings.TrimSpace(strings.Join(lines, "\n")), 1)
	}
	return base
}
