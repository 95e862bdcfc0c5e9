package policy

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/internal/testkit"
	"github.com/sluicehq/sluice/kernel"
	"github.com/sluicehq/sluice/memory"
)

func parse(t testing.TB, rules string) *Policy {
	t.Helper()
	p, err := Parse("test.yaml", []byte("version: 1\n"+rules))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func compile(t testing.TB, d Document) *Policy {
	t.Helper()
	p, err := Compile(d)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func engine(t testing.TB, rules string) *Engine {
	t.Helper()
	return NewEngine(memory.New(), parse(t, rules))
}

// recorded returns an engine, and its store, which records the charges.
func recorded(t testing.TB, rules string) (*Engine, *testStore) {
	t.Helper()
	stored := &testStore{Store: memory.New(), record: true}
	return NewEngine(stored, parse(t, rules)), stored
}

// get returns a request of 192.0.2.1 for a path, with headers as "Name: value".
func get(path string, headers ...string) *Request {
	return request("GET", path, "192.0.2.1", headers...)
}

func request(method, path, client string, headers ...string) *Request {
	r := &Request{Method: method, Host: "example.com", Path: path, Peer: netip.MustParseAddr(client), Header: http.Header{}}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// ends marks a request as one with an end that the integration reports.
func ends(r *Request) *Request {
	r.Ends = true
	return r
}

// pass decides about a request, and fails the test if it is denied.
func pass(t testing.TB, e *Engine, r *Request) Decision {
	t.Helper()
	d := e.Decide(t.Context(), r)
	if !d.Allowed {
		t.Fatalf("%s: %s", r.Path, summary(d))
	}
	return d
}

// summary returns the verdict of a decision, and the remaining units of each limit.
func summary(d Decision) string {
	return strings.Join(append([]string{verdictOf(&d)}, resultsOf(&d)...), " ")
}

func status(n int) Outcome { return Outcome{Status: n} }

func header(n int, name, value string) Outcome {
	return Outcome{Status: n, Header: http.Header{name: {value}}}
}

func subjectOf(t testing.TB, e *Engine, rule string, key map[string]string) *Subject {
	t.Helper()
	s, err := e.Subject(rule, key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// remains returns the remaining units of a rule without a key.
func remains(t testing.TB, e *Engine, rule string) int64 {
	t.Helper()
	results, err := subjectOf(t, e, rule, nil).Peek(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return results[0].Remaining
}

// reset resets the count of a rule without a key.
func reset(t testing.TB, e *Engine, rule string) {
	t.Helper()
	if err := subjectOf(t, e, rule, nil).Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// testStore passes charges on to a store, records them, and fails on command.
type testStore struct {
	sluice.Store
	mu          sync.Mutex // guards the fields below: permits are renewed on other goroutines
	record      bool
	charges     []sluice.Charge
	err         error // returned in place of receipts
	closedLocks bool  // locks cannot be read
	deaf        bool  // answers are lost once the context has ended
	unbounded   bool  // a call had no deadline
}

func (s *testStore) Take(ctx context.Context, charges []sluice.Charge, receipts []sluice.Receipt) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, bounded := ctx.Deadline(); !bounded {
		s.unbounded = true
	}
	if s.err != nil {
		return s.err
	}
	if ctx.Err() != nil && !s.deaf {
		return ctx.Err() // like a store behind a network
	}
	if s.record {
		for _, c := range charges {
			c.Key = strings.Clone(c.Key)
			s.charges = append(s.charges, c)
		}
	}
	if err := s.Store.Take(ctx, charges, receipts); err != nil {
		return err
	}
	for i := range charges {
		if s.closedLocks && charges[i].Plan.Kernel == kernel.Lock {
			receipts[i] = sluice.Receipt{Receipt: kernel.Receipt{Now: receipts[i].Now}, Origin: sluice.ByOnError}
		}
	}
	return ctx.Err()
}

// broken returns a store that does not answer.
func broken(err error) *testStore { return &testStore{err: err} }

// exactAlgorithms are algorithms that give back exactly the units that were taken.
var exactAlgorithms = []string{"token_bucket", "fixed_window", "sliding_window_counter", "sliding_window_log", "sliding_window_log_exact"}

const formType, jsonType = "application/x-www-form-urlencoded", "application/json"

// claims returns a token with these claims.
func claims(payload string) string {
	return "eyJhbGciOiJIUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(payload)) + ".c2ln"
}

// names returns the rows of a section of testdata/names.txt.
func names(t testing.TB, section string) []testkit.Row {
	t.Helper()
	return testkit.SectionOf(t, "testdata/names.txt", section).Rows(t)
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// virtual runs a test in virtual time, in parallel with others.
func virtual(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

// virtually runs a subtest in virtual time, in parallel with others.
func virtually(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual(t, test) })
}

// keys returns the keys of the recorded charges.
func (s *testStore) keys() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.charges {
		all = append(all, c.Key)
	}
	return all
}

// set changes the behavior of the store, and deletes the recorded charges.
func (s *testStore) set(err error, closedLocks bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err, s.closedLocks, s.charges = err, closedLocks, nil
}

// body returns the Body field of a request, as integrations set it.
func body(s string) func(int64) ([]byte, error) {
	return func(limit int64) ([]byte, error) {
		if int64(len(s)) > limit {
			return nil, nil
		}
		return append([]byte{}, s...), nil
	}
}
