// Package control has the policy in force as it is written, and changes it in the database beneath it. The admin
// API and the console are above it and share its callers, tokens and items; package source is below.
package control

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
)

// Caller is a person or a program that acts, by the name that the audit log has.
type Caller struct {
	Name string
	Role source.Role
}

// Token is what a caller shows. Only its hash is kept.
type Token struct {
	Name    string // of the caller
	Hash    string // see [HashToken]
	Role    source.Role
	Expires time.Time // never if zero
}

// HashToken returns the SHA-256 of a token in hexadecimal. Tokens are long and random, so that
// nothing slower is needed.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}
