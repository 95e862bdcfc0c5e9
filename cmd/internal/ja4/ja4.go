// Package ja4 computes the JA4 fingerprint of a TLS client from its ClientHello. A program has the same fingerprint
// on all its connections. The specification is https://github.com/FoxIO-LLC/ja4/blob/main/technical_details/JA4.md.
package ja4

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// The extensions that are counted, but not included in the hash.
const (
	serverName = 0x0000
	alpn       = 0x0010
)

// Of returns the JA4 of a client over TCP, such as t13d1516h2_8daaf6152771_e5627efa2ab1. It always has 36 bytes of
// printable ASCII.
func Of(hello *tls.ClientHelloInfo) string {
	ciphers, extensions := known(hello.CipherSuites), known(hello.Extensions)
	name := "i"
	if slices.Contains(extensions, serverName) {
		name = "d"
	}
	counts := fmt.Sprintf("%02d%02d", min(len(ciphers), 99), min(len(extensions), 99))
	hashed := slices.DeleteFunc(extensions, func(e uint16) bool { return e == serverName || e == alpn })
	signatures := make([]uint16, len(hello.SignatureSchemes))
	for i, s := range hello.SignatureSchemes {
		signatures[i] = uint16(s)
	}
	return "t" + version(hello.SupportedVersions) + name + counts + protocol(hello.SupportedProtos) +
		"_" + hash(list(sorted(ciphers)), "") +
		"_" + hash(list(sorted(hashed)), list(known(signatures)))
}

// known returns a copy without the values of GREASE (RFC 8701), which are chosen at random.
func known(values []uint16) []uint16 {
	return slices.DeleteFunc(slices.Clone(values), grease)
}

func grease(v uint16) bool { return v&0x0f0f == 0x0a0a && v>>8 == v&0xff }

func sorted(values []uint16) []uint16 {
	slices.Sort(values)
	return values
}

func list(values []uint16) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprintf("%04x", v)
	}
	return strings.Join(texts, ",")
}

// version returns the code of the highest version that the client supports. It ignores SSL, which Go does not
// support.
func version(supported []uint16) string {
	versions := known(supported)
	if len(versions) == 0 {
		return "00"
	}
	if v := slices.Max(versions); v >= tls.VersionTLS10 && v <= tls.VersionTLS13 {
		return fmt.Sprint(v - tls.VersionTLS10 + 10)
	}
	return "00"
}

// protocol returns the first and the last character of the first ALPN protocol.
func protocol(all []string) string {
	if len(all) == 0 || all[0] == "" {
		return "00"
	}
	first := all[0]
	if !alphanumeric(first[0]) || !alphanumeric(first[len(first)-1]) {
		first = hex.EncodeToString([]byte(first))
	}
	return string([]byte{first[0], first[len(first)-1]})
}

func alphanumeric(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' }

// hash returns the first six bytes of the SHA-256 of two lists, in hexadecimal.
func hash(values, order string) string {
	if values == "" {
		return "000000000000"
	}
	if order != "" {
		values += "_" + order
	}
	sum := sha256.Sum256([]byte(values))
	return hex.EncodeToString(sum[:6])
}
