package sluice

import (
	"crypto/sha256"
	"encoding/hex"
)

// MaxKeyPart is the length in bytes above which a key holds a value's hash in place of the value:
// see [AppendKeyPart].
const MaxKeyPart = 128

// AppendKeyPart appends a value to a key in a readable and unambiguous form: letters, digits and
// -._~@:,+= stay as they are, every other byte becomes %XX, and a value of more than [MaxKeyPart]
// bytes becomes "#" and the first half of its SHA-256. Different values give different results; in
// particular no value contains "/", "{", "}" or "!", which keys use between their parts.
func AppendKeyPart(dst []byte, value string) []byte {
	if len(value) > MaxKeyPart {
		sum := sha256.Sum256([]byte(value))
		return hex.AppendEncode(append(dst, '#'), sum[:16])
	}
	const digits = "0123456789ABCDEF"
	plain := 0
	for plain < len(value) && plainKeyByte[value[plain]] == 1 {
		plain++
	}
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

// plainKey reports whether AppendKeyPart leaves a value as it is.
func plainKey(value string) bool {
	if len(value) > MaxKeyPart {
		return false
	}
	// Four at a time, since every key passes here.
	for ; len(value) >= 4; value = value[4:] {
		if plainKeyByte[value[0]]&plainKeyByte[value[1]]&plainKeyByte[value[2]]&plainKeyByte[value[3]] == 0 {
			return false
		}
	}
	for i := range len(value) {
		if plainKeyByte[value[i]] == 0 {
			return false
		}
	}
	return true
}

var plainKeyByte = func() (plain [256]uint8) {
	for _, c := range []byte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@:,+=") {
		plain[c] = 1
	}
	return plain
}()
