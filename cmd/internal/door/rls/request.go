package rls

import (
	"errors"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Bounds for a request. Envoy sends few descriptors with few entries.
const (
	maxDescriptors = 128
	maxEntries     = 32 // entries of one descriptor
	maxText        = 4 << 10
)

// maxHits is larger than any limit, but small enough for the exact arithmetic of limits.
const maxHits = 1 << 50

// request is a RateLimitRequest. It is reused. Its strings are substrings of one string.
type request struct {
	domain      string
	hits        uint32 // 0 means 1
	descriptors []descriptor
	entries     []entry // the entries of all descriptors
	fault       error   // the error to return if the request is unreadable or too large
}

type entry struct{ key, value string }

type descriptor struct {
	from, to int // the range of its entries in request.entries
	limit    override
	hasLimit bool
	hits     uint64
	hasHits  bool
	negative bool
}

// override is a limit that the request carries for a descriptor.
type override struct {
	requests      uint32
	unit          int32
	multiplier    uint32
	hasMultiplier bool
}

func (r *request) reset() {
	clear(r.entries)
	r.domain, r.hits, r.fault = "", 0, nil
	r.descriptors, r.entries = r.descriptors[:0], r.entries[:0]
}

// entriesOf returns the entries of a descriptor.
func (r *request) entriesOf(d *descriptor) []entry { return r.entries[d.from:d.to] }

// cost returns the hits of a descriptor. 0 means that the engine only peeks.
func (r *request) cost(d *descriptor) int64 {
	switch {
	case d.hasHits:
		return int64(min(d.hits, maxHits))
	case r.hits == 0:
		return 1
	}
	return int64(r.hits)
}

var (
	errWire = invalid(errors.New("this is not a message of Protocol Buffers"))
	errUTF8 = invalid(errors.New("a text in the message is not UTF-8"))
)

// field is a field of a message. Its content is a number in value, or bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64
	bytes  string
}

// next returns the first field of a message and the rest of the message.
func next(m string) (f field, rest string, err error) {
	b := unsafe.Slice(unsafe.StringData(m), len(m))
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 || number > protowire.MaxValidNumber {
		return f, "", errWire
	}
	f.number, f.kind = number, kind
	size := protowire.ConsumeFieldValue(number, kind, b[n:])
	if size < 0 {
		return f, "", errWire
	}
	switch kind {
	case protowire.VarintType:
		f.value, _ = protowire.ConsumeVarint(b[n:])
	case protowire.BytesType:
		value, _ := protowire.ConsumeBytes(b[n:])
		f.bytes = m[n+size-len(value) : n+size]
	}
	return f, m[n+size:], nil
}

// each calls the function do for every field of a message.
func each(m string, do func(field) error) error {
	for m != "" {
		f, rest, err := next(m)
		if err != nil {
			return err
		}
		if err := do(f); err != nil {
			return err
		}
		m = rest
	}
	return nil
}

func text(f field, into *string) error {
	if !utf8.ValidString(f.bytes) {
		return errUTF8
	}
	*into = f.bytes
	return nil
}

// read decodes a message into r, which must be empty.
func (r *request) read(m string) error {
	return each(m, func(f field) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType:
			return text(f, &r.domain)
		case f.number == 2 && f.kind == protowire.BytesType:
			return r.readDescriptor(f.bytes)
		case f.number == 3 && f.kind == protowire.VarintType:
			r.hits = uint32(f.value)
		}
		return nil
	})
}

func (r *request) readDescriptor(m string) error {
	if len(r.descriptors) == maxDescriptors {
		return tooMuch("the request has more than %d descriptors", maxDescriptors)
	}
	r.descriptors = append(r.descriptors, descriptor{from: len(r.entries)})
	d := &r.descriptors[len(r.descriptors)-1]
	err := each(m, func(f field) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType:
			if len(r.entries)-d.from == maxEntries {
				return tooMuch("descriptors[%d] has more than %d entries", len(r.descriptors)-1, maxEntries)
			}
			return r.readEntry(f.bytes)
		case f.number == 2 && f.kind == protowire.BytesType:
			d.hasLimit = true
			return d.limit.read(f.bytes)
		case f.number == 3 && f.kind == protowire.BytesType:
			d.hasHits = true
			return wrapped(f.bytes, func(v uint64) { d.hits = v })
		case f.number == 4 && f.kind == protowire.VarintType:
			d.negative = f.value != 0
		}
		return nil
	})
	d.to = len(r.entries)
	return err
}

// tooMuch returns the error for a request that exceeds a bound.
func tooMuch(format string, args ...any) error {
	return grpcstatus.Errorf(codes.ResourceExhausted, "sluice: "+format, args...)
}

func (r *request) readEntry(m string) error {
	r.entries = append(r.entries, entry{})
	e := &r.entries[len(r.entries)-1]
	return each(m, func(f field) error {
		switch {
		case f.number == 1 && f.kind == protowire.BytesType:
			return text(f, &e.key)
		case f.number == 2 && f.kind == protowire.BytesType:
			return text(f, &e.value)
		}
		return nil
	})
}

func (o *override) read(m string) error {
	return each(m, func(f field) error {
		switch {
		case f.number == 1 && f.kind == protowire.VarintType:
			o.requests = uint32(f.value)
		case f.number == 2 && f.kind == protowire.VarintType:
			o.unit = int32(f.value)
		case f.number == 3 && f.kind == protowire.BytesType:
			o.hasMultiplier = true
			return wrapped(f.bytes, func(v uint64) { o.multiplier = uint32(v) })
		}
		return nil
	})
}

// wrapped reads a message that contains only a number, such as a UInt64Value.
func wrapped(m string, set func(uint64)) error {
	return each(m, func(f field) error {
		if f.number == 1 && f.kind == protowire.VarintType {
			set(f.value)
		}
		return nil
	})
}

// check returns an error if the decoded request is invalid.
func (r *request) check() error {
	if r.domain == "" {
		return errors.New("the request has no domain")
	}
	if len(r.descriptors) == 0 {
		return errors.New("the request has no descriptors")
	}
	if len(r.domain) > maxText {
		return fmt.Errorf("domain has %d bytes, the maximum is %d", len(r.domain), maxText)
	}
	for i := range r.descriptors {
		if err := checkEntries(i, r.entriesOf(&r.descriptors[i])); err != nil {
			return err
		}
	}
	return nil
}

func checkEntries(at int, entries []entry) error {
	if len(entries) == 0 {
		return fmt.Errorf("descriptors[%d] has no entries", at)
	}
	for i, e := range entries {
		switch {
		case e.key == "":
			return fmt.Errorf("descriptors[%d].entries[%d] has no key", at, i)
		case len(e.key)+len(e.value) > maxText:
			return fmt.Errorf("descriptors[%d].entries[%d] has %d bytes, the maximum is %d", at, i, len(e.key)+len(e.value), maxText)
		}
	}
	return nil
}
