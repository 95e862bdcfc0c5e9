package main

import (
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/control"
)

// doorTokens are the tokens of --door-tokens. While the file cannot be read, those that were read
// last go on: a slip in it must not turn away everybody who asks.
type doorTokens struct {
	file    tokenFile
	guesses *guesses
	log     *slog.Logger
	known   atomic.Pointer[[]control.Token]
	looked  atomic.Int64 // when, in nanoseconds since 1970
	failing atomic.Bool  // has been logged
}

// lookAgain is how often the file is looked at.
const lookAgain = time.Second

// newDoorTokens reads the file before anybody asks: of those who ask first, one would read it, and
// the others be turned away.
func newDoorTokens(path string, log *slog.Logger) *doorTokens {
	t := &doorTokens{file: tokenFile{path: path, plain: true}, guesses: newGuesses(log), log: log}
	t.looked.Store(time.Now().UnixNano())
	t.look()
	return t
}

var errNoDoorToken = errors.New("unknown token: --door-tokens does not list it")

// admit returns an error unless a token is one of them, which comes from an address at a door.
func (t *doorTokens) admit(from, door, token string) error {
	if token == "" {
		return errNoDoorToken
	}
	right := false
	err := t.guesses.check(from, door, token, func() (bool, bool) {
		right = t.have(token)
		return right, !right
	})
	if err == nil && !right {
		err = errNoDoorToken
	}
	return err
}

// have reports whether a token is one of them.
func (t *doorTokens) have(token string) bool {
	now := time.Now()
	if last := t.looked.Load(); now.UnixNano()-last >= int64(lookAgain) && t.looked.CompareAndSwap(last, now.UnixNano()) {
		t.look()
	}
	known := t.known.Load()
	if token == "" || known == nil {
		return false
	}
	hash := control.HashToken(token)
	return slices.ContainsFunc(*known, func(k control.Token) bool {
		return k.Hash == hash && (k.Expires.IsZero() || now.Before(k.Expires))
	})
}

func (t *doorTokens) look() {
	tokens, err := t.file.read()
	if err == nil {
		t.known.Store(&tokens)
	}
	switch failing := err != nil; {
	case t.failing.Swap(failing) == failing:
	case failing:
		t.log.Warn("--door-tokens: the file cannot be read, and the tokens that it had go on", "error", err)
	default:
		t.log.Info("--door-tokens: the file can be read again")
	}
}
