package tokens

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/access"
	"github.com/sluicehq/sluice/cmd/internal/adminapi"
	"github.com/sluicehq/sluice/cmd/internal/control"
	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/memory"
	"github.com/sluicehq/sluice/policy"
)

// guessed is a limiter of guesses at the token "secret".
type guessed struct {
	*Guesses
	looked      atomic.Int64
	unavailable atomic.Bool
}

func (d *guessed) try(from, token string) (right bool, err error) {
	err = d.Check(from, "a door", token, func() (bool, bool) {
		d.looked.Add(1)
		right = token == "secret" && !d.unavailable.Load()
		return right, !right && !d.unavailable.Load()
	})
	return right, err
}

func TestGuessesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &guessed{Guesses: NewGuesses(slog.New(slog.NewTextHandler(&log, nil)))}
		if right, err := d.try("192.0.2.1:1000", "secret"); !right || err != nil {
			t.Fatal(right, err)
		}
		// Guesses from one address are limited together, whatever their ports, also at the same time.
		var guessing sync.WaitGroup
		var many atomic.Int64
		for i := range 2000 {
			guessing.Go(func() {
				right, err := d.try(fmt.Sprintf("192.0.2.1:%d", 1001+i), fmt.Sprint(i))
				if right {
					t.Error("a guess is right")
				}
				if _, ok := errors.AsType[*tooManyGuesses](err); ok {
					many.Add(1)
				}
			})
		}
		guessing.Wait()
		if many.Load() != 2000-wrongPerMinute || d.looked.Load() != 1+wrongPerMinute {
			t.Errorf("%d of 2000 guesses were refused as too many, and %d tokens were checked", many.Load(), d.looked.Load())
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 || !strings.Contains(log.String(), `door="a door"`) {
			t.Errorf("the log has %d lines:\n%s", lines, log.String())
		}
		// No further guess is checked, not even a right one. But the token that the address used before is still
		// accepted.
		if right, err := d.try("192.0.2.1:9", "secret"); !right || err != nil {
			t.Errorf("a caller that shares the address: %v, %v", right, err)
		}
		if right, err := d.try("192.0.2.2:9", "secret"); !right || err != nil {
			t.Errorf("a caller from elsewhere: %v, %v", right, err)
		}
		time.Sleep(time.Minute)
		if _, err := d.try("192.0.2.1:9", "x"); err != nil {
			t.Errorf("a minute later: %v", err)
		}
	})
}

// A program that repeats an old token does not use up the guesses, and other tokens from its address are accepted.
func TestSameWrongToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &guessed{Guesses: NewGuesses(slog.New(slog.DiscardHandler))}
		for range 1000 {
			if right, err := d.try("192.0.2.1:1000", "old"); right || err != nil {
				t.Fatal(right, err)
			}
		}
		if right, err := d.try("192.0.2.1:1001", "secret"); !right || err != nil {
			t.Errorf("a caller that shares the address: %v, %v", right, err)
		}
		for i := range 2 * wrongPerMinute {
			_, err := d.try("192.0.2.1:1000", fmt.Sprint(i))
			if _, many := errors.AsType[*tooManyGuesses](err); many != (i >= wrongPerMinute-1) {
				t.Errorf("guess %d: %v", i, err)
			}
		}
	})
}

func TestGuessesOfNetworks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		d := &guessed{Guesses: NewGuesses(slog.New(slog.NewTextHandler(&log, nil)))}
		// Right tokens, and tokens while the list is unavailable, use up no guesses. A wrong token sent while the list
		// is unavailable does not count as one that the address has used.
		for i := range 100 {
			d.unavailable.Store(i%2 == 0)
			if _, err := d.try("[2001:db8::1]:1", "secret"); err != nil {
				t.Fatal(err)
			}
		}
		d.unavailable.Store(true)
		_, _ = d.try("[2001:db8::99]:1", "guess")
		d.unavailable.Store(false)
		for i := range 2 * wrongPerMinute {
			_, err := d.try(fmt.Sprintf("[2001:db8::%x]:1", i+2), "guess")
			if many, ok := errors.AsType[*tooManyGuesses](err); ok != (i >= wrongPerMinute) || ok && many.RetrySeconds() != 6 {
				t.Errorf("guess %d from a network: %v", i, err)
			}
		}
		if _, err := d.try("[2001:db8::99]:1", "guess"); err == nil {
			t.Error("the earlier guess is checked again")
		}
		// A flood of guesses from many addresses does not fill the log.
		for i := range 5000 {
			_, _ = d.try(fmt.Sprintf("10.1.%d.%d:1", i/256, i%256), "guess")
		}
		if lines := strings.Count(log.String(), "\n"); lines > 20 {
			t.Errorf("the log has %d lines", lines)
		}
	})
}

// Guesses are limited wherever tokens are checked. A token in use is still accepted.
func TestGuessesAtDoors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte(fmt.Sprintf("ann %v\nbob %v\n", source.HashToken("anns"), source.HashToken("bobs"))), 0o600); err != nil {
		t.Fatal(err)
	}
	compiled, err := policy.Compile(policy.Document{Rules: []policy.Rule{{Name: "a", Limit: "5/minute"}}})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	who := &access.Access{
		Guess: NewGuesses(log).At("--admin"),
		Tokens: func() ([]source.TokenRow, error) {
			return []source.TokenRow{
				{Name: "ann", Role: source.Viewer, Hash: source.HashToken("anns")},
				{Name: "bob", Role: source.Viewer, Hash: source.HashToken("bobs")},
			}, nil
		},
	}
	over := control.Config{Engine: policy.NewEngine(memory.New(), compiled), Stack: &source.Stack{}, Logger: log}
	api := adminapi.New(adminapi.Config{Control: control.New(over), Access: who, Logger: log})
	tokens := NewIntegrations(file, slog.New(slog.DiscardHandler))
	for name, try := range map[string]func(token string) (right, many bool){
		"admin API": func(token string) (right, many bool) {
			r := httptest.NewRequest("GET", "/v1/policy", nil)
			r.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			return w.Code == http.StatusOK, w.Code == http.StatusTooManyRequests && w.Header().Get("Retry-After") != ""
		},
		"doors": func(token string) (right, many bool) {
			err := tokens.admit("192.0.2.1:1", "--resp", token)
			_, many = errors.AsType[*tooManyGuesses](err)
			return err == nil, many
		},
	} {
		refused := 0
		if right, _ := try("anns"); !right {
			t.Errorf("%s: the right token is refused", name)
		}
		for i := range 50 {
			right, many := try(fmt.Sprint("guess ", i))
			if right {
				t.Errorf("%s: a guess is right", name)
			}
			if many {
				refused++
			}
		}
		if refused < 35 { // a few guesses may be refilled meanwhile
			t.Errorf("%s: only %d of 50 guesses were refused without a check", name, refused)
		}
		if right, _ := try("anns"); !right {
			t.Errorf("%s: a token in use is refused", name)
		}
		if right, many := try("bobs"); right || !many {
			t.Errorf("%s: a token is checked after too many guesses", name)
		}
	}
}
