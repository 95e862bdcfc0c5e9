package redisstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
)

// newAEAD returns AES-256-GCM, the nonce in front, under a key for one purpose that is derived from
// the secret; nil if there is no secret.
func newAEAD(secret []byte, purpose string) cipher.AEAD {
	if len(secret) == 0 {
		return nil
	}
	derived := hmac.New(sha256.New, secret)
	derived.Write([]byte(purpose))
	// Neither fails with a key of 32 bytes.
	block, _ := aes.NewCipher(derived.Sum(nil))
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return aead
}
