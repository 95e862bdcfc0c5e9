// Package tokens checks the tokens of callers. It reads the valid tokens from files, and limits the number of wrong
// tokens that an address may try. Package server uses it for the admin API and the integrations.
package tokens

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

// wrongPerMinute is the number of wrong tokens that an address may try per minute.
const wrongPerMinute = 10

const (
	guessBytes  = 1 << 20
	knownTokens = 1 << 12
)

// Guesses limits the number of wrong tokens that an address may try, and logs wrong tokens. After too many, it only
// checks tokens that the address has used before, so that an attacker does not lock out callers with the same
// address. A repeated wrong token counts once, so that a program with an old token does not lock out others.
// Guesses is safe for concurrent use.
type Guesses struct {
	wrong *sluice.Limiter // counts by network
	lines *sluice.Limiter // limits the lines in the log
	log   *slog.Logger

	seed  maphash.Seed
	known [knownTokens]atomic.Uint64 // hashes, each of an address and a right token
	tried [knownTokens]atomic.Uint64 // hashes, each of an address and a wrong token
}

// tooManyGuesses is the error for a token that was not checked.
type tooManyGuesses struct{ retryAfter time.Duration }

func (e *tooManyGuesses) Error() string {
	return fmt.Sprintf("too many unknown tokens came from your address: try again in %d seconds", e.RetrySeconds())
}

// RetrySeconds returns the value of a Retry-After field.
func (e *tooManyGuesses) RetrySeconds() int {
	return int((e.retryAfter + time.Second - 1) / time.Second)
}

// NewGuesses returns Guesses without counts.
func NewGuesses(log *slog.Logger) *Guesses {
	store := memory.NewSize(guessBytes)
	limiter := func(name, text string) *sluice.Limiter {
		limit, err := sluice.ParseLimit(text)
		if err != nil {
			panic(err) // cannot happen: the limits are constants
		}
		l, err := sluice.NewLimiter(store, name, limit)
		if err != nil {
			panic(err)
		}
		return l
	}
	return &Guesses{
		wrong: limiter("wrong", fmt.Sprintf("%d/minute", wrongPerMinute)), lines: limiter("lines", "1/second burst 20"),
		log: log, seed: maphash.MakeSeed(),
	}
}

// Check calls look, which checks the token. After too many wrong tokens, it returns an error with a method RetrySeconds
// instead. If look returns neither right nor wrong, the token cannot be checked now, and does not count. The client is
// identified by its address and port. The name of the listener is for the log.
func (g *Guesses) Check(client, listener, token string, look func() (right, wrong bool)) error {
	remote, _ := netip.ParseAddrPort(client) // other callers, such as those of Unix sockets, share the zero address
	address := remote.Addr().Unmap().WithZone("")
	hash := g.hash(address, token)
	known, tried := &g.known[hash%knownTokens], &g.tried[hash%knownTokens]
	if known.Load() == hash || tried.Load() == hash {
		look()
		return nil
	}
	// The guess is charged before the check, so that simultaneous guesses cannot evade the limit.
	ctx, key := context.Background(), guessNetwork(address)
	d, _ := g.wrong.Take(ctx, key, 1) // a memory store never fails
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
		g.note("unknown token rejected", client, listener)
	case 0:
		g.note("too many unknown tokens from one address: for up to a minute, only tokens that this address used before are checked", client, listener)
	}
	return nil
}

// At returns the method Check for the listener with the given name.
func (g *Guesses) At(listener string) func(client, token string, look func() (right, wrong bool)) error {
	return func(client, token string, look func() (right, wrong bool)) error {
		return g.Check(client, listener, token, look)
	}
}

// note logs a line, unless too many lines were logged recently.
func (g *Guesses) note(message, client, listener string) {
	if d, _ := g.lines.Take(context.Background(), "", 1); d.Allowed {
		g.log.Warn(message, "from", client, "door", listener)
	}
}

func (g *Guesses) hash(address netip.Addr, token string) uint64 {
	var h maphash.Hash
	h.SetSeed(g.seed)
	_, _ = h.Write(address.AppendTo(nil))
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(token)
	return h.Sum64()
}

// guessNetwork returns the key under which guesses are counted: an IPv4 address, or the /64 of an IPv6 address.
func guessNetwork(address netip.Addr) string {
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return prefix.String()
	}
	return address.String()
}
