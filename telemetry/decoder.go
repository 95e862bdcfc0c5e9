package telemetry

import (
	"encoding/binary"
	"errors"
	"strings"
)

// decoder reads a post, which may have any content. After the first error it returns zeros.
type decoder struct {
	rest   []byte
	failed bool
}

var errUnreadable = errors.New("telemetry: the data of an instance is damaged, or from another version of Sluice")

func (d *decoder) fail() { d.rest, d.failed = nil, true }

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.fail()
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

// bytes returns the next n bytes.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.rest)) {
		d.fail()
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

// uvarint returns the next number. The parameter is the maximum: a larger number is an error.
func (d *decoder) uvarint(most uint64) uint64 {
	v, n := binary.Uvarint(d.rest)
	if n <= 0 || v > most {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// varint returns the next number. The parameter is the maximum: a number with a larger absolute value is an error.
func (d *decoder) varint(most int64) int64 {
	v, n := binary.Varint(d.rest)
	if n <= 0 || v > most || v < -most {
		d.fail()
		return 0
	}
	d.rest = d.rest[n:]
	return v
}

// text returns a text that follows its length. The parameter is the maximum length in bytes: a longer text is an
// error.
func (d *decoder) text(most int) string {
	return strings.ToValidUTF8(string(d.bytes(d.uvarint(uint64(most)))), "\uFFFD")
}
