package source

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"time"
)

// tokenPrefix lets scanners for secrets, and people, tell what it is.
const tokenPrefix = "sluice_"

// newSecret returns 256 random bits as a bearer sends them, and their hash. Nobody can guess so
// many, so the hash needs no salt and no rounds.
func newSecret() (secret string, hash [sha256.Size]byte) {
	var bits [32]byte
	_, _ = rand.Read(bits[:]) // it never fails
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(bits[:])
	return secret, sha256.Sum256([]byte(secret))
}

// Authenticate returns the token whose secret it is, if there is one and it has not ended. How
// long it takes says nothing of the tokens but how many there are.
func (c *Contents) Authenticate(secret string, now time.Time) (found TokenRow, ok bool) {
	hash := sha256.Sum256([]byte(secret))
	for i := range c.Tokens {
		t := &c.Tokens[i]
		same := subtle.ConstantTimeCompare(hash[:], t.hash[:]) == 1
		if same && t.fault == "" && (t.until.IsZero() || now.Before(t.until)) {
			found, ok = *t, true
		}
	}
	return found, ok
}
