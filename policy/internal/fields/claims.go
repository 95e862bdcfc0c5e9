package fields

import (
	"encoding/base64"
	"strings"
)

// maxToken is the length, in bytes, of the longest token payload that is read.
const maxToken = 64 << 10

// AddClaims adds the claims of a JSON Web Token (RFC 7519) in its compact form. It does not verify the signature.
func (m *Members) AddClaims(token string) {
	_, rest, ok := strings.Cut(token, ".")
	payload, signature, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 || strings.IndexByte(signature, '.') >= 0 || len(payload) > maxToken {
		m.garbled = true
		return
	}
	data, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(payload, "="))
	m.garbled = err != nil || !m.addJSON(data, false) || m.garbled
}
