package redisstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
)

// codec encrypts what instances send each other through the server, if keys are secret. It uses AES-256-GCM
// with a key for one purpose that is derived from the secret. The nonce is in front.
type codec struct{ aead cipher.AEAD } // nil without a secret

const codecOverhead = 12 + 16 // nonce and tag

func newCodec(secret []byte, purpose string) codec {
	if len(secret) == 0 {
		return codec{}
	}
	derived := hmac.New(sha256.New, secret)
	derived.Write([]byte(purpose))
	// Neither fails with a key of 32 bytes.
	block, _ := aes.NewCipher(derived.Sum(nil))
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return codec{aead}
}

// seal encrypts a text, which can be opened only with the same context.
func (c codec) seal(text []byte, context string) string {
	if c.aead == nil {
		return string(text)
	}
	return string(c.aead.Seal(nil, nil, text, []byte(context)))
}

// open returns the text that seal has encrypted with the same secret and context.
func (c codec) open(sealed, context string) (text []byte, ok bool) {
	if c.aead == nil {
		return []byte(sealed), true
	}
	text, err := c.aead.Open(nil, nil, []byte(sealed), []byte(context))
	return text, err == nil
}
