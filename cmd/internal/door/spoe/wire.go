package spoe

import "math/bits"

// The types of values. The upper four bits of the byte with the type are flags.
const (
	typeNull byte = iota
	typeBool
	typeInt32
	typeUint32
	typeInt64
	typeUint64
	typeIPv4
	typeIPv6
	typeString
	typeBinary
)

const flagTrue = 0x10 // the value of a typeBool is true

var errBroken = &fault{codeInvalid, "the frame is truncated or malformed"}

// decoder reads the elements of frames. After the first fault, all reads return zero values.
type decoder struct {
	rest   string
	broken bool
}

func (d *decoder) fail() {
	d.rest, d.broken = "", true
}

func (d *decoder) take(n uint64) string {
	if n > uint64(len(d.rest)) {
		d.fail()
		return ""
	}
	s := d.rest[:n]
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) byte() byte {
	if s := d.take(1); s != "" {
		return s[0]
	}
	return 0
}

// uint32 reads four bytes in big-endian order.
func (d *decoder) uint32() (n uint32) {
	for _, c := range []byte(d.take(4)) {
		n = n<<8 | uint32(c)
	}
	return n
}

// varint reads a number in HAProxy's variable-length form. A number below 240 is one byte. Otherwise the upper four
// bits of the first byte are set, and more bytes follow, up to one below 128. The number is the sum of all bytes:
// the second byte is shifted left by 4 bits, the third by 11, and each further one by 7 more.
func (d *decoder) varint() uint64 {
	n := uint64(d.byte())
	if n < 240 {
		return n
	}
	for shift := 4; shift < 64; shift += 7 {
		c := uint64(d.byte())
		sum, carry := bits.Add64(n, c<<shift, 0)
		if carry != 0 || c<<shift>>shift != c {
			break
		}
		if n = sum; c < 128 {
			return n
		}
	}
	d.fail()
	return 0
}

func appendVarint(dst []byte, n uint64) []byte {
	if n < 240 {
		return append(dst, byte(n))
	}
	dst = append(dst, byte(n)|240)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		dst = append(dst, byte(n)|128)
	}
	return append(dst, byte(n))
}

// text reads a length and a text of that length.
func (d *decoder) text() string { return d.take(d.varint()) }

func appendText[T string | []byte](dst []byte, s T) []byte {
	return append(appendVarint(dst, uint64(len(s))), s...)
}

// value is a value with its type. Strings, binaries and addresses are in text, other values in number.
type value struct {
	kind   byte
	number uint64
	text   string
}

func (d *decoder) value() (v value) {
	head := d.byte()
	v.kind = head & 15
	switch v.kind {
	case typeNull:
	case typeBool:
		v.number = uint64(head & flagTrue / flagTrue)
	case typeInt32, typeUint32, typeInt64, typeUint64:
		v.number = d.varint()
	case typeIPv4:
		v.text = d.take(4)
	case typeIPv6:
		v.text = d.take(16)
	case typeString, typeBinary:
		v.text = d.text()
	default:
		d.fail()
	}
	return v
}
