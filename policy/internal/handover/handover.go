// Package handover encodes permits in flight as a text. With this text, a caller can end the request in another
// process.
package handover

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
)

// maxPermits is the maximum number of permits in a text.
const maxPermits = 64

// Permit is a permit in flight.
type Permit struct {
	Key    string
	Number uint64
	Of     uint64 // the total number of permits of the key
}

// Text returns permits as a text with a checksum. The text is not encrypted.
func Text(permits []Permit) string {
	var text []byte
	for _, p := range permits {
		text = append(binary.AppendUvarint(text, uint64(len(p.Key))), p.Key...)
		text = binary.LittleEndian.AppendUint64(text, p.Number)
		text = binary.AppendUvarint(text, p.Of)
	}
	return base64.RawURLEncoding.EncodeToString(binary.LittleEndian.AppendUint32(text, crc32.ChecksumIEEE(text)))
}

// Parse returns the permits of a text. It returns false if the text does not come from Text.
func Parse(written string) (permits []Permit, ok bool) {
	text, err := base64.RawURLEncoding.DecodeString(written)
	end := len(text) - crc32.Size
	if err != nil || end <= 0 || crc32.ChecksumIEEE(text[:end]) != binary.LittleEndian.Uint32(text[end:]) {
		return nil, false
	}
	text = text[:end]
	seen := make(map[string]bool)
	for len(text) > 0 {
		length, used := binary.Uvarint(text)
		if used <= 0 || length > uint64(len(text)-used) || uint64(len(text)-used)-length < 8 || len(permits) == maxPermits {
			return nil, false
		}
		key, number := string(text[used:used+int(length)]), binary.LittleEndian.Uint64(text[used+int(length):])
		text = text[used+int(length)+8:]
		of, used := binary.Uvarint(text)
		if used <= 0 || number == 0 || seen[key] {
			return nil, false
		}
		text = text[used:]
		seen[key] = true
		permits = append(permits, Permit{key, number, of})
	}
	return permits, true
}
