package redisstore

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"hash"
	"strings"
	"sync"

	"github.com/sluicehq/sluice"
)

// The largest lengths in bytes. Longer keys and hash tags are replaced by their hashes.
const (
	maxKey = 512
	maxTag = 128
)

// naming makes the names of states in Redis:
//
//	prefix fingerprint ":" key
//	prefix fingerprint "#" hash
//
// The fingerprint has 11 characters, so the two forms cannot be confused. If the key begins with a hash tag, the text
// after ":" or "#" begins with the same hash tag. With a HashKey, or if the tag is too long, a hash replaces the text
// between its braces. No brace comes before it, so the key's hash tag is the first one in the name, and sets the slot.
// On a cluster, all other names get a hash tag, so that the slot depends on the key alone:
//
//	prefix fingerprint "={" key "}"
//	prefix fingerprint "#{" hash "}"
type naming struct {
	prefix  string
	cluster bool
	hashes  sync.Pool // of hash.Hash; an HMAC if there is a HashKey
	secret  bool
}

func newNaming(prefix string, cluster bool, secret []byte) *naming {
	n := &naming{prefix: prefix, cluster: cluster, secret: len(secret) > 0}
	n.hashes.New = func() any {
		if n.secret {
			return hmac.New(sha256.New, secret)
		}
		return sha256.New()
	}
	return n
}

// append appends the name of a charge's state to dst.
func (n *naming) append(dst []byte, c *sluice.Charge) []byte {
	dst = append(dst, n.prefix...)
	var fingerprint [8]byte
	binary.BigEndian.PutUint64(fingerprint[:], c.Plan.Fingerprint)
	dst = base64.RawURLEncoding.AppendEncode(dst, fingerprint[:])
	tag := leadingTag(c.Key)
	tagged := tag != "" || !n.cluster
	hideTag := n.secret || len(tag) > maxTag
	switch {
	case hideTag || len(c.Key) > maxKey:
	case tagged:
		return append(append(dst, ':'), c.Key...)
	case c.Key != "" && !strings.ContainsAny(c.Key, "{}"):
		return append(append(append(dst, '=', '{'), c.Key...), '}')
	}
	dst = append(dst, '#')
	if !tagged {
		return append(n.appendHash(append(dst, '{'), "key:", c.Key), '}')
	}
	switch {
	case tag == "":
	case hideTag:
		dst = append(n.appendHash(append(dst, '{'), "tag:", tag), '}')
	default:
		dst = append(append(append(dst, '{'), tag...), '}')
	}
	return n.appendHash(dst, "key:", c.Key)
}

// slot returns the hash slot of all states under a key, on a cluster.
func (n *naming) slot(key string) uint16 {
	var name [256]byte
	return slot(n.append(name[:0], &sluice.Charge{Key: key, Plan: &anyPlan}))
}

var anyPlan sluice.Plan

// appendHash appends half of a hash, as 22 characters. The hash is of the text and of a prefix that differs for keys
// and tags, so a key and a tag with the same text have different hashes.
func (n *naming) appendHash(dst []byte, prefix, text string) []byte {
	h := n.hashes.Get().(hash.Hash)
	h.Reset()
	h.Write([]byte(prefix))
	h.Write([]byte(text))
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	n.hashes.Put(h)
	return base64.RawURLEncoding.AppendEncode(dst, sum[:16])
}

// leadingTag returns the hash tag that a key begins with, or "".
func leadingTag(key string) string {
	if !strings.HasPrefix(key, "{") {
		return ""
	}
	tag, _, found := strings.Cut(key[1:], "}")
	if !found {
		return ""
	}
	return tag
}
