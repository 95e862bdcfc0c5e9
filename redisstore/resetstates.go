package redisstore

import "encoding/binary"

// A message has states, one behind the other: the fingerprint of the plan in eight bytes, the
// length of the key as a varint, and the key. With a secret it is encrypted, since the server is
// not to learn the keys.

const (
	maxStates    = 1 << 16 // bytes in a message, before it is encrypted
	maxStateHead = 8 + binary.MaxVarintLen64
)

func appendState(dst []byte, fingerprint uint64, key string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, fingerprint)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

// cutState returns the first of states and the others, if it is one.
func cutState(states []byte) (fingerprint uint64, key string, rest []byte, ok bool) {
	if len(states) < 8 {
		return 0, "", nil, false
	}
	fingerprint, states = binary.BigEndian.Uint64(states), states[8:]
	length, n := binary.Uvarint(states)
	if n <= 0 || length > uint64(len(states)-n) {
		return 0, "", nil, false
	}
	end := n + int(length)
	return fingerprint, string(states[n:end]), states[end:], true
}
