// Package guesses limits how many wrong tokens an address may try, and logs them.
package guesses

import (
	"context"
	"fmt"
	"hash/maphash"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/memory"
)

// PerMinute is how many wrong tokens an address may try in a minute.
const PerMinute = 10

const (
	memoryBytes = 1 << 20
	knownSlots  = 1 << 12
)

// Limiter checks tokens. An address that has tried too many wrong ones has no further token looked at
// for a while, but for those that it has used before: a caller that shares an address with an attacker
// is not locked out. It is safe for concurrent use.
type Limiter struct {
	wrong *sluice.Limiter // by network
	lines *sluice.Limiter // of the log
	log   *slog.Logger

	seed  maphash.Seed
	known [knownSlots]atomic.Uint64 // hashes of an address and a token that it has used
}

// TooMany is the error of a token that was not looked at.
type TooMany struct{ RetryAfter time.Duration }

func (e *TooMany) Error() string {
	return fmt.Sprintf("too many wrong tokens came from your address: try again in %d seconds", e.Seconds())
}

// Seconds returns RetryAfter as a Retry-After field has it.
func (e *TooMany) Seconds() int { return int((e.RetryAfter + time.Second - 1) / time.Second) }

// Caller returns the address of the other end of a call of gRPC.
func Caller(ctx context.Context) string {
	p, ok := peer.FromContext(ctx)
	if !ok || p.Addr == nil {
		return ""
	}
	return p.Addr.String()
}

// New returns a Limiter that logs wrong tokens.
func New(log *slog.Logger) *Limiter {
	store := memory.NewSize(memoryBytes)
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
	return &Limiter{
		wrong: limiter("wrong", fmt.Sprintf("%d/minute", PerMinute)), lines: limiter("lines", "1/second burst 20"),
		log: log, seed: maphash.MakeSeed(),
	}
}

// Verdict is what became of a token.
type Verdict int

const (
	Undecided Verdict = iota // the tokens are not known just now
	Wrong
	Right
)

// Check looks at a token by calling look, or returns a [*TooMany] without doing so. The token came
// from an address with a port at a door, which the log names.
func (l *Limiter) Check(from, door, token string, look func() Verdict) error {
	remote, _ := netip.ParseAddrPort(from) // the zero address stands for others, such as Unix sockets
	address := remote.Addr().Unmap().WithZone("")
	hash := l.hash(address, token)
	slot := &l.known[hash%knownSlots]
	if slot.Load() == hash {
		look()
		return nil
	}
	// It is charged before it is looked at: many guesses at the same time are no way around the limit.
	ctx, key := context.Background(), network(address)
	d, _ := l.wrong.Take(ctx, key, 1) // a store in memory never fails
	if !d.Allowed {
		return &TooMany{d.RetryAfter}
	}
	switch look() {
	case Right:
		slot.Store(hash)
		fallthrough
	case Undecided:
		_, _ = l.wrong.Refund(ctx, key, 1)
	case Wrong:
		switch d.Remaining {
		case PerMinute - 1:
			l.note("a token is wrong", from, door)
		case 0:
			l.note("a token is wrong, and so were others: for a while, no further token from this address is looked at", from, door)
		}
	}
	return nil
}

// note logs a line, unless there have been many.
func (l *Limiter) note(message, from, door string) {
	if d, _ := l.lines.Take(context.Background(), "", 1); d.Allowed {
		l.log.Warn(message, "from", from, "door", door)
	}
}

func (l *Limiter) hash(address netip.Addr, token string) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	_, _ = h.Write(address.AppendTo(nil))
	_ = h.WriteByte(' ')
	_, _ = h.WriteString(token)
	return h.Sum64()
}

// network returns what is limited together: an address, or the /64 of one of IPv6.
func network(address netip.Addr) string {
	if address.Is6() {
		prefix, _ := address.Prefix(64)
		return prefix.String()
	}
	return address.String()
}
