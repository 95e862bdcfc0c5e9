package redisstore

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
)

// codec encrypts messages between instances, if the store has a HashKey. It uses AES-256-GCM with a key that is
// derived from the HashKey for one purpose. A sealed message begins with the nonce.
type codec struct{ aead cipher.AEAD } // nil without a HashKey

const codecOverhead = 12 + 16 // nonce and tag

func newCodec(secret []byte, purpose string) codec {
	if len(secret) == 0 {
		return codec{}
	}
	derived := hmac.New(sha256.New, secret)
	derived.Write([]byte(purpose))
	// Neither call fails for a key of 32 bytes.
	block, _ := aes.NewCipher(derived.Sum(nil))
	aead, _ := cipher.NewGCMWithRandomNonce(block)
	return codec{aead}
}

// seal encrypts a text. open needs the same context to decrypt it.
func (c codec) seal(text []byte, context string) string {
	if c.aead == nil {
		return string(text)
	}
	return string(c.aead.Seal(nil, nil, text, []byte(context)))
}

// open decrypts a text of seal with the same HashKey and context.
func (c codec) open(sealed, context string) (text []byte, ok bool) {
	if c.aead == nil {
		return []byte(sealed), true
	}
	text, err := c.aead.Open(nil, nil, []byte(sealed), []byte(context))
	return text, err == nil
}
