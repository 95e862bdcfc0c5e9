package source

import (
	"crypto/rand"
	"encoding/base64"
)

// tokenPrefix starts every token, so that people and secret scanners recognize tokens.
const tokenPrefix = "sluice_"

// newSecret returns a bearer token of 256 random bits, and its hash. The bits cannot be guessed, so the hash needs
// no salt and no repetition.
func newSecret() (secret string, hash TokenHash) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
	return secret, HashToken(secret)
}
