package control

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// Token identifies a caller. Only its hash is kept.
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

// Tokens returns the tokens of a database, and none if it is nil.
func Tokens(d *source.Database) ([]Token, error) {
	if d == nil {
		return nil, nil
	}
	contents := d.Known()
	if contents == nil {
		return nil, source.ErrAway
	}
	var all []Token
	for i := range contents.Tokens {
		t := &contents.Tokens[i]
		var ends time.Time
		if t.Until != "" {
			var err error
			if ends, err = policy.ParseUntil(t.Until); err != nil {
				ends = time.Unix(0, 0) // written by SQL and unreadable: it counts as expired
			}
		}
		hash := t.Hash()
		role, _ := source.ParseRole(string(t.Role)) // one that SQL has made up is Nobody
		all = append(all, Token{Name: t.Name, Hash: hex.EncodeToString(hash[:]), Role: role, Expires: ends})
	}
	return all, nil
}
