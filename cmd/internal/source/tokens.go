package source

import (
	"crypto/rand"
	"encoding/base64"
)

// tokenPrefix lets people and scanners for secrets recognize a token.
const tokenPrefix = "sluice_"

// newSecret returns 256 random bits in the form of a bearer token, and their hash. The bits cannot be guessed, so
// the hash needs no salt and no rounds.
func newSecret() (secret string, hash TokenHash) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
	return secret, HashToken(secret)
}
