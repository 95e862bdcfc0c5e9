package recipes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
	"github.com/sluicehq/sluice/policyfile"
)

func limiter(t *testing.T, text string) *sluice.Limiter {
	t.Helper()
	limit, err := sluice.ParseLimit(text)
	if err != nil {
		t.Fatal(err)
	}
	l, err := sluice.NewLimiter(memory.New(), "test", limit)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Time stands still in a bubble, and jumps ahead when all goroutines wait.
func TestSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sent := time.Now(), 0
		err := send(t.Context(), limiter(t, "1/second burst 1"), make([]string, 10), func(string) error { sent++; return nil })
		if took := time.Since(began); err != nil || sent != 10 || took != 9*time.Second {
			t.Errorf("%d messages in %v: %v; want 10 in 9s", sent, took, err)
		}
	})
}

func TestSendInVain(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := 0
	err := send(ctx, limiter(t, "1/hour burst 1"), make([]string, 2), func(string) error { sent++; return nil })
	if sent != 1 || !errors.Is(err, sluice.ErrTooLong) {
		t.Errorf("a worker with a timeout of a minute sent %d, and got the error %v", sent, err)
	}
}

func TestByUser(t *testing.T) {
	rules, err := policyfile.Parse("api.yaml", []byte(`
version: 1
rules: [{name: per-user, key: [attr:user], limit: 1/day}]
`))
	if err != nil {
		t.Fatal(err)
	}
	h := byUser(policy.NewEngine(memory.New(), rules))(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	for i, c := range []struct {
		user string
		want int
	}{{"alice", 200}, {"bob", 200}, {"alice", 429}} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", "/", nil).WithContext(context.WithValue(t.Context(), userKey{}, c.user)))
		if w.Code != c.want {
			t.Errorf("request %d, of %s: %d, want %d", i+1, c.user, w.Code, c.want)
		}
	}
}

func TestLogins(t *testing.T) {
	l, err := newLogins(memory.New(), func(_, password string) bool { return password == "right" })
	if err != nil {
		t.Fatal(err)
	}
	try := func(password string, ok bool, want error) {
		t.Helper()
		if got, err := l.login(t.Context(), "alice", password); got != ok || !errors.Is(err, want) {
			t.Errorf("%s: %v, %v; want %v, %v", password, got, err, ok, want)
		}
	}
	for range 10 {
		try("right", true, nil)
	}
	for range 5 {
		try("wrong", false, nil)
	}
	try("wrong", false, errTooManyFailures)
	try("right", false, errTooManyFailures)
}
