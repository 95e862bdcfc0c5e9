package recent

import (
	"encoding/binary"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/policy"
)

// value is the value of a key part in a record.
type value struct {
	policy.Reading
	hidden bool   // Value is a token
	shown  string // the visible form of the value; "" if it is Value
}

// reader reads the records of the chunks of a stripe in order. Its fields describe the current record. They are valid
// until the next record is read.
type reader struct {
	chunks []chunk
	rest   []byte
	whole  []byte // the data of the chunk
	schema *schema

	at      int64  // the time in microseconds since the Unix epoch
	id      uint64 // the ID of the request, or of an outcome's request; 0 if unknown
	ended   bool   // the record is an outcome
	outcome policy.Outcome
	denied  bool
	request policy.Request
	client  value // the client, if it is hidden
	values  []value
	header  http.Header
	attrs   map[string]string
	tokens  []byte
}

func newReader(chunks []chunk) *reader {
	r := &reader{chunks: chunks, header: http.Header{}, attrs: map[string]string{}}
	r.request.Header, r.request.Attributes, r.request.Door = r.header, r.attrs, "recent"
	// Because of this Body, rules that do not read a body decide first, as they did for the live request.
	r.request.Body = func(int64) ([]byte, error) { return []byte{}, nil }
	return r
}

// next reads a record. It returns false after the last one.
func (r *reader) next() bool {
	for len(r.rest) == 0 {
		if len(r.chunks) == 0 {
			return false
		}
		c := &r.chunks[0]
		r.rest, r.whole, r.schema, r.at = c.data, c.data, c.schema, c.first
		r.chunks = r.chunks[1:]
	}
	r.tokens = r.tokens[:0]
	q := &r.request
	flags := r.number()
	r.at += r.signed()
	r.denied, q.NoPath, q.Mode, q.Cost = flags&denied != 0, flags&noPath != 0, policy.Charge, 0
	if flags&givesBack != 0 {
		q.Mode = policy.GiveBack
	}
	if r.ended = flags&isOutcome != 0; r.ended {
		r.readOutcome()
		return true
	}
	if flags&hasCost != 0 {
		q.Cost = int64(r.number())
	}
	if r.id = 0; flags&hasID != 0 {
		r.id = r.number()
	}
	q.Method, q.Host, q.Path = r.text(), r.text(), r.text()
	r.readClient()
	r.values = r.values[:0]
	clear(r.attrs)
	for i := range r.schema.parts {
		r.readPart(&r.schema.parts[i])
	}
	clear(r.header)
	for _, f := range r.schema.fields {
		r.readField(f.Name)
	}
	return true
}

func (r *reader) number() uint64 {
	n, used := binary.Uvarint(r.rest)
	r.rest = r.rest[used:]
	return n
}

func (r *reader) signed() int64 {
	n, used := binary.Varint(r.rest)
	r.rest = r.rest[used:]
	return n
}

func (r *reader) readOutcome() {
	r.id = r.number()
	o := &r.outcome
	*o = policy.Outcome{Status: int(r.number()), Bytes: r.signed(), Verdict: policy.Verdict(r.number()), Cost: r.signed(), At: time.UnixMicro(r.at)}
	o.Header = http.Header{}
	for _, name := range r.schema.answers {
		for n := r.number(); n > 0; n-- {
			value := "other"
			if number := r.number(); number > 0 {
				value = strconv.FormatUint(number-1, 10)
			}
			o.Header[name] = append(o.Header[name], value)
		}
	}
}

func (r *reader) text() string {
	n, used := binary.Uvarint(r.rest)
	if n&1 == 1 {
		r.rest = r.rest[used:]
		s, _ := literalAt(r.whole[n>>1:])
		return s
	}
	s, length := literalAt(r.rest)
	r.rest = r.rest[length:]
	return s
}

func (r *reader) readClient() {
	s := r.text()
	r.client, r.request.Peer = value{}, netip.Addr{}
	switch {
	case s == "":
	case r.schema.client != whole:
		r.client = r.hidden(s)
	default:
		r.request.Peer, _ = netip.AddrFromSlice([]byte(s))
	}
	r.request.Client = r.request.Peer
}

func (r *reader) readPart(p *schemaPart) {
	number := r.number()
	v := value{Reading: policy.Reading{State: policy.ReadingState(number >> 1)}}
	switch {
	case v.State == policy.Faulty:
		v.Value = r.text()
	case v.State != policy.Present:
	case p.show != whole:
		v = r.hidden(r.text())
	default:
		v.Value = r.text()
		if number&1 == 1 {
			v.shown = r.text()
		}
	}
	r.values = append(r.values, v)
	if name, is := strings.CutPrefix(p.id, "attr:"); is && v.State == policy.Present {
		r.attrs[name] = v.Value
	}
}

// hidden returns the value for a text that consists of a hash and the visible form.
func (r *reader) hidden(s string) value {
	return value{policy.Reading{State: policy.Present, Value: r.token("", binary.LittleEndian.Uint64([]byte(s)))}, true, s[hashLen:]}
}

// token returns the token of a hash after a prefix.
func (r *reader) token(prefix string, hash uint64) string {
	start := len(r.tokens)
	r.tokens = appendToken(append(r.tokens, prefix...), hash)
	return text(r.tokens[start:])
}

// appendToken appends the token of a hash, which takes the place of a value. A token consists of decimal digits, so
// comparisons that ignore case do not change it.
func appendToken(dst []byte, hash uint64) []byte {
	return strconv.AppendUint(dst, hash, 10)
}

// fieldPrefix starts the token of a field's value, to distinguish the token from a number.
const fieldPrefix = "h"

func (r *reader) readField(name string) {
	for n := r.number(); n > 0; n-- {
		if number := r.number(); number > 0 {
			start := len(r.tokens)
			r.tokens = strconv.AppendUint(r.tokens, number-1, 10)
			r.header[name] = append(r.header[name], text(r.tokens[start:]))
			continue
		}
		hash := binary.LittleEndian.Uint64(r.rest)
		r.rest = r.rest[hashLen:]
		r.header[name] = append(r.header[name], r.token(fieldPrefix, hash))
	}
}
