package rls

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// The codes of a response. The code 0, UNKNOWN, is never used, because Envoy treats it as a failure and allows the
// request.
const (
	codeOK   = 1
	codeOver = 2
)

// currentLimit is a RateLimitResponse.RateLimit.
type currentLimit struct {
	name       string
	requests   uint32
	unit       int32
	multiplier uint32 // 0 and 1 mean no multiplier
}

// status is a DescriptorStatus.
type status struct {
	code      uint64
	limit     currentLimit
	hasLimit  bool
	remaining uint32
	reset     int64 // in seconds; negative if unknown
}

// reply is an encoded RateLimitResponse.
type reply struct{ bytes []byte }

func appendNumber(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), v)
}

func appendText(b []byte, number protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), s)
}

// open starts a message that is a field of another message, and returns the position of its first byte. The function
// shut ends the message that starts at this position.
func open(b []byte, number protowire.Number) (_ []byte, at int) {
	b = append(protowire.AppendTag(b, number, protowire.BytesType), 0)
	return b, len(b)
}

func shut(b []byte, at int) []byte {
	size := len(b) - at
	if size < 0x80 {
		b[at-1] = byte(size)
		return b
	}
	n := protowire.SizeVarint(uint64(size)) - 1 // the bytes that the size needs beyond the one that open reserved
	b = append(b, make([]byte, n)...)
	copy(b[at+n:], b[at:at+size])
	protowire.AppendVarint(b[:at-1], uint64(size))
	return b
}

func (s *status) append(b []byte) []byte {
	b, at := open(b, 2)
	b = appendNumber(b, 1, s.code)
	if s.hasLimit {
		b = s.limit.append(b)
	}
	b = appendNumber(b, 3, uint64(s.remaining))
	if s.reset >= 0 {
		var inner int
		b, inner = open(b, 4)
		b = shut(appendNumber(b, 1, uint64(s.reset)), inner)
	}
	return shut(b, at)
}

func (l *currentLimit) append(b []byte) []byte {
	b, at := open(b, 2)
	b = appendNumber(b, 1, uint64(l.requests))
	b = appendNumber(b, 2, uint64(l.unit))
	b = appendText(b, 3, l.name)
	if l.multiplier > 1 {
		var inner int
		b, inner = open(b, 4)
		b = shut(appendNumber(b, 1, uint64(l.multiplier)), inner)
	}
	return shut(b, at)
}

// The lists of header fields in a response: response_headers_to_add is for the response to the client, and
// request_headers_to_add for the request to the upstream.
const (
	responseHeader = 3
	requestHeader  = 4
)

// appendHeader appends a HeaderValue to a list of the response.
func appendHeader(b []byte, field protowire.Number, key, value string) []byte {
	b, at := open(b, field)
	return shut(appendText(appendText(b, 1, key), 2, value), at)
}
