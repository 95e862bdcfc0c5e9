package main

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// wrongPerMinute is how many wrong tokens an address may try in a minute.
const wrongPerMinute = 10

const (
	guessBytes  = 1 << 20
	knownTokens = 1 << 12
)

// guesses limits how many wrong tokens an address may try, and logs them. After too many, only tokens
// that the address used before are looked at for a while: an attacker does not lock out callers with the
// same address. One wrong token again and again is one guess: a program with an old token locks out
// no others. It is safe for concurrent use.
type guesses struct {
	wrong *sluice.Limiter // by network
	lines *sluice.Limiter // of the log
	log   *slog.Logger

	seed  maphash.Seed
	known [knownTokens]atomic.Uint64 // hashes of an address and a token that it has used
	tried [knownTokens]atomic.Uint64 // and of one that was wrong
}

// tooManyGuesses is the error of a token that was not looked at.
type tooManyGuesses struct{ retryAfter time.Duration }

func (e *tooManyGuesses) Error() string {
	return fmt.Sprintf("too many unknown tokens came from your address: try again in %d seconds", e.RetrySeconds())
}

// RetrySeconds returns the wait as a Retry-After field has it.
func (e *tooManyGuesses) RetrySeconds() int {
	return int((e.retryAfter + time.Second - 1) / time.Second)
}

// newGuesses returns a limiter that logs wrong tokens.
func newGuesses(log *slog.Logger) *guesses {
	store := memory.NewSize(guessBytes)
	limiter := func(name, text string) *sluice.Limiter {
		limit, err := sluice.ParseLimit(text)
		if err != nil {
			panic(err) // the limits are constants
		}
		l, err := sluice.NewLimiter(store, name, limit)
		if err != nil {
			panic(err)
		}
		return l
	}
	return &guesses{
		wrong: limiter("wrong", fmt.Sprintf("%d/minute", wrongPerMinute)), lines: limiter("lines", "1/second burst 20"),
		log: log, seed: maphash.MakeSeed(),
	}
}

// check looks at a token by calling look, or returns a *tooManyGuesses without doing so. A token that is
// neither right nor wrong cannot be judged just now. It came from an address with a port at a door, which
// the log names.
func (g *guesses) check(from, door, token string, look func() (right, wrong bool)) error {
	remote, _ := netip.ParseAddrPort(from) // the zero address stands for others, such as Unix sockets
	address := remote.Addr().Unmap().WithZone("")
	hash := g.hash(address, token)
	known, tried := &g.known[hash%knownTokens], &g.tried[hash%knownTokens]
	if known.Load() == hash || tried.Load() == hash {
		look()
		return nil
	}
	// It is charged before it is looked at: many guesses at the same time are no way around the limit.
	ctx, key := context.Background(), guessNetwork(address)
	d, _ := g.wrong.Take(ctx, key, 1) // a store in memory never fails
	if !d.Allowed {
		return &tooManyGuesses{d.RetryAfter}
	}
	right, wrong := look()
	if right {
		known.Store(hash)
	}
	if !wrong {
		_, _ = g.wrong.Refund(ctx, key, 1)
		return nil
	}
	tried.Store(hash)
	switch d.Remaining {
	case wrongPerMinute - 1:
		g.note("an unknown token was refused", from, door)
	case 0:
		g.note("too many unknown tokens came from an address: only tokens that it used before are checked for a while", from, door)
	}
	return nil
}

// at returns check at a door.
func (g *guesses) at(door string) func(from, token string, look func() (right, wrong bool)) error {
	return func(from, token string, look func() (right, wrong bool)) error {
		return g.check(from, door, token, look)
	}
}

// note logs a line, unless there have been many.
func (g *guesses) note(message, from, door string) {
	if d, _ := g.lines.Take(context.Background(), "", 1); d.Allowed {
		g.log.Warn(message, "from", from, "door", door)
	}
}

func (g *guesses) hash(address netip.Addr, token string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	_, _ = h.Write(address.AppendTo(nil))
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(token)
	return h.Sum64()
}

// guessNetwork returns what is limited together: an address, or the /64 of one of IPv6.
func guessNetwork(address netip.Addr) string {
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return prefix.String()
	}
	return address.String()
}
