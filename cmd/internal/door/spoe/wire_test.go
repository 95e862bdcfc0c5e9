package spoe

import (
	"bytes"
	"math"
	"testing"
)

// The lengths are those that HAProxy's description of the protocol gives for each range.
func TestVarint(t *testing.T) {
	for n, length := range map[uint64]int{
		0: 1, 239: 1, 240: 2, 2287: 2, 2288: 3, 264431: 3, 264432: 4, 33818863: 4, 33818864: 5, 4328786159: 5, 4328786160: 6, math.MaxUint64: 10,
	} {
		wrote := appendVarint([]byte{1}, n)[1:]
		if len(wrote) != length {
			t.Errorf("%d takes %d bytes, want %d", n, len(wrote), length)
		}
		d := decoder{rest: string(wrote) + "x"}
		if got := d.varint(); got != n || d.rest != "x" {
			t.Errorf("%d is decoded as %d, and %q is left", n, got, d.rest)
		}
		d = decoder{rest: string(wrote[:length-1])}
		if d.varint(); !d.broken {
			t.Errorf("%d without its last byte is accepted", n)
		}
	}
	if got := appendVarint(nil, 1234); !bytes.Equal(got, []byte{0xf2, 0x3e}) { // 1234 = 242 + 62<<4
		t.Errorf("1234 is % x", got)
	}
	for _, wrong := range []string{"", "\xff", "\xf0\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "\xf0\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"} {
		d := decoder{rest: wrong}
		if d.varint(); !d.broken {
			t.Errorf("% x is accepted", wrong)
		}
	}
}

func TestValue(t *testing.T) {
	for wire, want := range map[string]value{
		"\x00":                 {kind: typeNull},
		"\x01":                 {kind: typeBool},
		"\x11":                 {kind: typeBool, number: 1},
		"\x02\x05":             {kind: typeInt32, number: 5},
		"\x06\x7f\x00\x00\x01": {kind: typeIPv4, text: "\x7f\x00\x00\x01"},
		"\x07\x20\x01\r\xb8" + zeros(11) + "\x01": {kind: typeIPv6, text: "\x20\x01\r\xb8" + zeros(11) + "\x01"},
		"\x08\x03abc": {kind: typeString, text: "abc"},
		"\x09\x00":    {kind: typeBinary},
	} {
		if d := (decoder{rest: wire}); d.value() != want || d.broken || d.rest != "" {
			t.Errorf("% x is not %v", wire, want)
		}
	}
	for _, wrong := range []string{"", "\x0a", "\x0f", "\x02", "\x06\x7f\x00\x00", "\x08\x04abc", "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7fabc"} {
		d := decoder{rest: wrong}
		if d.value(); !d.broken {
			t.Errorf("% x is accepted", wrong)
		}
	}
}

func zeros(n int) string { return string(make([]byte, n)) }
