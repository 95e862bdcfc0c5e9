package redisstore

import "encoding/binary"

// A message is a sequence of states: for each, the fingerprint of the plan in eight bytes, the length of the key as
// a varint, and the key. With a HashKey the message is encrypted, because the server must not learn the keys.

const (
	maxStates    = 1 << 16 // bytes in a message, before encryption
	maxStateHead = 8 + binary.MaxVarintLen64
)

func appendState(dst []byte, fingerprint uint64, key string) []byte {
	dst = binary.BigEndian.AppendUint64(dst, fingerprint)
	dst = binary.AppendUvarint(dst, uint64(len(key)))
	return append(dst, key...)
}

// cutState returns the first of states, and the rest. It reports false if the first is invalid.
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
