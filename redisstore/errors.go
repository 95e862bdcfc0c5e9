package redisstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/redis/rueidis"
)

// Kind is the kind of an [Error].
type Kind uint8

const (
	// Unavailable: no server could be reached. Nothing was charged.
	Unavailable Kind = iota + 1
	// NotSent: the caller's context ended, or the store was closed, before the request
	// was sent. Nothing was charged.
	NotSent
	// Unknown: the request was sent and no answer came, because the caller's context
	// ended or the connection broke. It may have been charged, and is not sent again.
	Unknown
	// Loading: the server is reading its data from disk. Nothing was charged.
	Loading
	// Busy: the server is busy with another client's script. Nothing was charged.
	Busy
	// ReadOnly: the server takes no writes: it is a replica, or it cannot save to
	// disk. Nothing was charged.
	ReadOnly
	// OutOfMemory: the server's memory is full, and its settings do not let it evict keys. Nothing was charged.
	OutOfMemory
	// ClusterDown: the cluster does not serve this part of the keys. Nothing was charged.
	ClusterDown
	// Denied: the server does not accept the user, the password or the commands.
	// Nothing was charged.
	Denied
	// BadReply: this package does not understand the server's answer. The Take may have been charged.
	BadReply
	// Misconfigured: the settings are wrong. Only [ParseURL], [Open], [Config.Open] and [New] return it.
	Misconfigured
	// Foreign: the server works, but a key of a charge has a value that this package did not write: see
	// [ForeignState], which the error unwraps to. Nothing was charged.
	Foreign
)

var kindNames = [...]string{
	Unavailable: "unavailable", NotSent: "not sent", Unknown: "outcome unknown", Loading: "loading", Busy: "busy",
	ReadOnly: "read-only", OutOfMemory: "out of memory", ClusterDown: "cluster down", Denied: "denied",
	BadReply: "bad reply", Misconfigured: "misconfigured", Foreign: "foreign state",
}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kindNames) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kindNames[k]
}

// Error is the error of a [Store] that could not decide. Use [errors.AsType] to get its Kind. It unwraps to the cause,
// such as the error of the context, the network or the server.
type Error struct {
	Kind Kind
	Err  error
}

func (e *Error) Error() string { return fmt.Sprintf("redisstore: %v: %v", e.Kind, e.Err) }

func (e *Error) Unwrap() error { return e.Err }

// NotCharged reports whether it is certain that nothing was charged.
func (e *Error) NotCharged() bool { return e.Kind != Unknown && e.Kind != BadReply }

// ForeignState is the error to which an [Error] of kind Foreign unwraps. Nothing was charged.
//
// If the value is a string that is not a valid state, the Take has deleted it, because a string without an expiry
// would stay forever. The name of its key has the prefix and the fingerprint of a limit, so no other program uses
// it. The next Take of the key starts a new count. A list, a hash or a value of another type stays, because a
// program must have written it on purpose: all Takes of its key fail until the value is deleted.
type ForeignState struct {
	Keys    []string // names in Redis, hashed if [Config].HashKey is set
	Deleted []bool   // whether the value of each key was deleted
	charges []int
}

// Unreadable returns the indexes of the charges with foreign states, in ascending order.
func (e *ForeignState) Unreadable() []int { return e.charges }

func (e *ForeignState) Error() string {
	var b strings.Builder
	for i, key := range e.Keys {
		if i > 0 {
			b.WriteString("; ")
		}
		if e.Deleted[i] {
			fmt.Fprintf(&b, "the key %q contained foreign data: it was deleted, and its counter starts at zero", key)
		} else {
			fmt.Fprintf(&b, "the key %q has a type that Sluice does not use: delete it with DEL, or choose another prefix", key)
		}
	}
	return b.String()
}

// errClosed is the error of a closed store.
var errClosed = &Error{NotSent, errors.New("the store is closed")}

// replyKinds has the kind of an error reply of the server, by its first word. The server sends all of them before a
// script runs, or at the first write of a script.
var replyKinds = map[string]Kind{
	"LOADING":     Loading,
	"MASTERDOWN":  Loading,
	"BUSY":        Busy,
	"READONLY":    ReadOnly,
	"MISCONF":     ReadOnly,
	"NOREPLICAS":  ReadOnly,
	"OOM":         OutOfMemory,
	"CLUSTERDOWN": ClusterDown,
	"TRYAGAIN":    ClusterDown,
	"MOVED":       ClusterDown,
	"ASK":         ClusterDown,
	"NOAUTH":      Denied,
	"NOPERM":      Denied,
	"WRONGPASS":   Denied,
}

// failure wraps an error of the client library.
func failure(err error) *Error {
	if e, ok := errors.AsType[*rueidis.RedisError](err); ok {
		return &Error{replyKind(e), err}
	}
	if e, ok := errors.AsType[*replyError](err); ok {
		return &Error{BadReply, e}
	}
	_, ok := errors.AsType[*dialError](err)
	op, _ := errors.AsType[*net.OpError](err)
	switch {
	case ok, op != nil && op.Op == "dial", errors.Is(err, errStale):
		return &Error{Unavailable, err}
	case errors.Is(err, io.EOF):
		err = fmt.Errorf("the server closed the connection: %w", err)
	case errors.Is(err, context.DeadlineExceeded):
		// This is a deadline of the library. It must not look like the caller's deadline.
		err = errors.New("the server did not answer in time")
	}
	return &Error{Unknown, err}
}

func replyKind(e *rueidis.RedisError) Kind {
	word, rest, _ := strings.Cut(e.Error(), " ")
	if kind, ok := replyKinds[word]; ok {
		return kind
	}
	// Older servers wrap the cause in the error of the script.
	if word == "ERR" && strings.Contains(rest, "OOM command not allowed") {
		return OutOfMemory
	}
	if deniedInScript(e.Error()) {
		return Denied
	}
	return BadReply
}

var errMoving = &Error{ClusterDown, errors.New("the nodes did not agree on an owner of this slot in time")}
