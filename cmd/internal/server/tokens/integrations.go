package tokens

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Integrations has the tokens of the integrations. While the file is invalid, the tokens that were last read stay
// valid, so that a mistake in the file does not lock out all callers. Nil Integrations accept every caller.
type Integrations struct {
	file    File
	guesses *Guesses
	log     *slog.Logger
	known   atomic.Pointer[[]source.TokenRow]
	read    atomic.Int64 // the time of the last reading, in nanoseconds since 1970
	failing atomic.Bool  // an invalid file was logged
}

// rereadEvery is the interval of reading the file.
const rereadEvery = time.Second

// NewIntegrations returns the tokens in the file at path, or nil without a path. It reads the file now, because
// otherwise callers would be refused during the first reading.
func NewIntegrations(path string, log *slog.Logger) *Integrations {
	if path == "" {
		return nil
	}
	t := &Integrations{file: File{Path: path, NoRoles: true}, guesses: NewGuesses(log), log: log}
	t.read.Store(time.Now().UnixNano())
	t.reread()
	return t
}

var errUnknown = errors.New("unknown token: --door-tokens does not list it")

// At returns a function that checks the callers of a listener, or nil if every caller is accepted. from is the
// caller's address and port.
func (t *Integrations) At(listener string) func(from, token string) error {
	if t == nil {
		return nil
	}
	return func(from, token string) error { return t.admit(from, listener, token) }
}

func (t *Integrations) admit(from, listener, token string) error {
	if token == "" {
		return errUnknown
	}
	right := false
	err := t.guesses.Check(from, listener, token, func() (bool, bool) {
		right = t.has(token)
		return right, !right
	})
	if err == nil && !right {
		err = errUnknown
	}
	return err
}

func (t *Integrations) has(token string) bool {
	now := time.Now()
	if last := t.read.Load(); now.UnixNano()-last >= int64(rereadEvery) && t.read.CompareAndSwap(last, now.UnixNano()) {
		t.reread()
	}
	known := t.known.Load()
	if token == "" || known == nil {
		return false
	}
	hash := source.HashToken(token)
	return slices.ContainsFunc(*known, func(k source.TokenRow) bool { return k.Hash == hash && !k.Expired() })
}

func (t *Integrations) reread() {
	tokens, err := t.file.Read()
	if err == nil {
		t.known.Store(&tokens)
	}
	switch failing := err != nil; {
	case t.failing.Swap(failing) == failing:
	case failing:
		t.log.Warn("--door-tokens: cannot read the file, its previous tokens stay valid", "error", err)
	default:
		t.log.Info("--door-tokens: the file can be read again")
	}
}
