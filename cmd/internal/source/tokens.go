package source

import (
	"crypto/rand"
	"encoding/base64"
)

// tokenPrefix lets scanners for secrets, and people, tell what it is.
const tokenPrefix = "sluice_"

// newSecret returns 256 random bits as bearer tokens have them, and their hash. They cannot be guessed, so the hash
// needs no salt and no rounds.
func newSecret() (secret string, hash TokenHash) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
	return secret, HashToken(secret)
}
