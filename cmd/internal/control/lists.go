package control

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"sync"
)

// lists keeps the items of the policy in force, in the order of their IDs, and its version.
type lists struct {
	written *written
	mu      sync.Mutex
	of      *current
	items   map[Kind][]item
	version string
}

// begin locks the cache, and empties it if it is of another policy.
func (l *lists) begin(now *current) {
	l.mu.Lock()
	if l.of != now {
		l.of, l.items, l.version = now, map[Kind][]item{}, ""
	}
}

// versionOf returns a name for a policy, made of its document: instances with the same policy return the same.
func (l *lists) versionOf(now *current) string {
	l.begin(now)
	defer l.mu.Unlock()
	if l.version == "" {
		sum := sha256.Sum256(JSON(now.document))
		l.version = hex.EncodeToString(sum[:8])
	}
	return l.version
}

// get returns the items of a kind, in the order of their IDs.
func (l *lists) get(kind Kind) []item {
	now := l.written.now()
	l.begin(now)
	defer l.mu.Unlock()
	if _, known := l.items[kind]; !known {
		l.items[kind] = l.written.items(now, kind)
	}
	return l.items[kind]
}

// find returns an item by its ID.
func (l *lists) find(kind Kind, id string) (item, bool) {
	all := l.get(kind)
	i, found := slices.BinarySearchFunc(all, item{ID: id}, byID)
	if !found {
		return item{}, false
	}
	return all[i], true
}
