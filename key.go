package sluice

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxKeyPart is the length in bytes of the longest value that a key contains as text. A longer value is replaced by
// a hash: see [AppendKeyPart].
const MaxKeyPart = 128

// AppendKeyPart appends a value to a key in a readable and unambiguous form: letters, digits and
// -._~@:,+= stay as they are, every other byte becomes %XX, and a value of more than [MaxKeyPart]
// bytes becomes "#" and the first half of its SHA-256. Different values give different results. No result contains
// "/", "{", "}" or "!", which keys use between their parts.
func AppendKeyPart(dst []byte, value string) []byte {
	if len(value) > MaxKeyPart {
		sum := sha256.Sum256([]byte(value))
		return hex.AppendEncode(append(dst, '#'), sum[:16])
	}
	const digits = "0123456789ABCDEF"
	plain := plainBytes(value)
	dst = append(dst, value[:plain]...)
	for i := plain; i < len(value); i++ {
		if c := value[i]; plainKeyByte[c] == 1 {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// plainKey reports whether AppendKeyPart copies a value unchanged.
func plainKey(value string) bool {
	return len(value) <= MaxKeyPart && plainBytes(value) == len(value)
}

// plainBytes returns the number of bytes at the start of a value that AppendKeyPart copies unchanged.
func plainBytes(value string) (n int) {
	// Eight bytes at a time, because this runs for every key.
	for ; len(value)-n >= 8; n += 8 {
		v, t := value[n:n+8], &plainKeyByte
		if t[v[0]]&t[v[1]]&t[v[2]]&t[v[3]]&t[v[4]]&t[v[5]]&t[v[6]]&t[v[7]] == 0 {
			break
		}
	}
	for n < len(value) && plainKeyByte[value[n]] == 1 {
		n++
	}
	return n
}

var plainKeyByte = func() (plain [256]uint8) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@:,+=") {
		plain[c] = 1
	}
	return plain
}()
