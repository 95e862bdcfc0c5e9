package recent

import (
	"cmp"
	"encoding/binary"
	"hash/maphash"
	"strconv"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice/policy"
)

// A record has flags, the time since the previous record in microseconds, method, host, path and client, then the
// parts and the fields of the schema. Numbers are varints. A text is a number, which is twice the length, and the
// bytes. If the chunk already contains the text, it is only a number, which is twice the position of the earlier
// text plus one.
//
// A part is a number and, if the part is present, a text. The number is twice the state of the part, plus one if
// the value is a folded name. If the schema hides the part, the text is a hash of the value in 8 bytes, followed by
// the visible form of the value. Otherwise, the text is the value; after a folded name comes another text with the
// original spelling. A field has the number of its values, and then each value: a number n as n+1, and any other
// value as zero and a hash.
//
// The record of an outcome has flags, time, the ID of the request or 0, status, length of the body, verdict and cost,
// and the values of the fields of responses, as numbers: see answerNumber.

// The flags of a record.
const (
	denied    = 1 << iota // the request was denied
	noPath                // see NoPath in policy.Request
	givesBack             // see policy.GiveBack
	hasCost               // the cost of the request follows the time
	hasID                 // the ID of the request follows; the record of its outcome has the same ID
	isOutcome             // the record is the outcome of a request
)

const (
	maxText   = 1 << 10 // the maximum length of a text in bytes; a longer one is cut and ends with a hash of the whole
	maxValues = 8       // the maximum number of values of a field; further values are omitted
	hashLen   = 8
	tokenLen  = 20 // the maximum length of a token: see appendToken
	slotBits  = 11 // log2 of the number of texts in a chunk to which references are possible

	numberBits = 48 // the maximum size of a number in a field, in bits; larger ones are hashes
)

// yes represents a value such as "true" in an outcome, which counts as the number 1. A number n is stored as n+1,
// and any other value as 0.
const yes = 1 + 1

// writer writes records into a chunk. It is not safe for concurrent use.
type writer struct {
	seed   maphash.Seed
	stripe int
	chunk  *chunk // nil before the first record
	slots  [1 << slotBits]slot
	read   []policy.Reading // the parts of the request
	value  []byte
}

// slot identifies a text in the chunk by the upper 46 bits of the text's hash, and has its position. Two texts with
// the same 46 bits are assumed to be equal, because comparing the texts would be slow: they are seldom in the
// processor's cache.
type slot uint64

const (
	positionBits = 18
	maxChunk     = 1 << positionBits // bytes
)

func (w *writer) begin(c *chunk) {
	w.chunk = c
	clear(w.slots[:])
}

// measure reads the parts of a request for write, and returns the maximum size of the record in bytes.
func (w *writer) measure(o *policy.Observation, s *schema) int {
	const number = binary.MaxVarintLen64
	n := 16*number + 3*maxText + len(s.fields)*(1+maxValues)*(number+hashLen)
	w.read = w.read[:0]
	for i := range s.parts {
		r := o.Reading(s.parts[i].at)
		w.read = append(w.read, r)
		n += 3*number + min(len(r.Value), maxText) + min(len(r.Sent), maxText) + maxShown
	}
	return n
}

// write appends the record of a decision, for which measure has been called. The parameter id is 0 if no rule depends
// on the outcome.
func (w *writer) write(o *policy.Observation, s *schema, at int64, id uint64) {
	q := o.Request
	w.number(flagIf(!o.Decision.Allowed, denied) | flagIf(q.NoPath, noPath) | flagIf(q.Mode == policy.GiveBack, givesBack) | flagIf(q.Cost > 1, hasCost) | flagIf(id > 0, hasID))
	w.time(at)
	if q.Cost > 1 {
		w.number(uint64(q.Cost))
	}
	if id > 0 {
		w.number(id)
	}
	w.text(q.Method)
	w.text(q.Host)
	w.text(q.Path)
	w.client(o, s)
	for i := range s.parts {
		w.part(&s.parts[i], &w.read[i])
	}
	for i := range s.fields {
		w.field(&s.fields[i], q.Header[s.fields[i].Name])
	}
}

func flagIf(is bool, flag uint64) uint64 {
	if is {
		return flag
	}
	return 0
}

// measureOutcome returns the maximum size of the record of an outcome, in bytes.
func measureOutcome(s *schema) int {
	return binary.MaxVarintLen64 * (8 + len(s.answers)*(1+maxValues))
}

// outcome appends the record of an outcome.
func (w *writer) outcome(o *policy.Outcome, s *schema, at int64, id uint64) {
	w.number(isOutcome)
	w.time(at)
	w.number(id)
	w.number(uint64(max(o.Status, 0)))
	w.signed(o.Bytes)
	w.number(uint64(o.Verdict))
	w.signed(o.Cost)
	for _, name := range s.answers {
		values := o.Header[name]
		values = values[:min(len(values), maxValues)]
		w.number(uint64(len(values)))
		for _, v := range values {
			w.number(answerNumber(strings.TrimSpace(v)))
		}
	}
}

// answerNumber returns the number with which the value of a response field is stored: see the constant yes.
func answerNumber(v string) uint64 {
	n, err := strconv.ParseUint(v, 10, numberBits)
	switch {
	case err == nil:
		return n + 1
	case strings.EqualFold(v, "true"), strings.EqualFold(v, "yes"):
		return yes
	}
	return 0
}

// time appends the time since the previous record.
func (w *writer) time(at int64) {
	w.signed(at - w.chunk.last)
	w.chunk.last = at
}

func (w *writer) signed(n int64) { w.chunk.data = binary.AppendVarint(w.chunk.data, n) }

func (w *writer) number(n uint64) { w.chunk.data = binary.AppendUvarint(w.chunk.data, n) }

func (w *writer) text(s string) {
	if len(s) > maxText {
		s = w.shortened(s)
	}
	if s == "" {
		w.number(0)
		return
	}
	h := maphash.String(w.seed, s)
	if !w.again(h) {
		w.literal(h, s, "")
	}
}

// shortened returns the start of a long text followed by a hash of the whole, so that different texts stay
// different.
func (w *writer) shortened(s string) string {
	return string(appendToken([]byte(s[:maxText-tokenLen]), maphash.String(w.seed, s)))
}

// again appends a reference to the text with a hash. It returns false if the chunk has no such text.
func (w *writer) again(hash uint64) bool {
	s := w.slots[hash>>(64-slotBits)]
	if s == 0 || (uint64(s)^hash)>>positionBits != 0 {
		return false
	}
	w.number(uint64(s)%maxChunk<<1 + 1)
	return true
}

// literal appends a text, which consists of the two parts s and rest, and stores its position under its hash.
func (w *writer) literal(hash uint64, s, rest string) {
	w.slots[hash>>(64-slotBits)] = slot(hash&^(maxChunk-1) | uint64(len(w.chunk.data)))
	w.number(uint64(len(s)+len(rest)) << 1)
	w.chunk.data = append(append(w.chunk.data, s...), rest...)
}

// client appends the address of the client, or its hash.
func (w *writer) client(o *policy.Observation, s *schema) {
	a := o.Client().Unmap().WithZone("")
	switch {
	case !a.IsValid():
		w.number(0)
	case s.client != whole:
		address := o.Policy().Partition(o.Request).String()
		w.hidden(address, address, s.client)
	default:
		w.value = append(w.value[:0], a.AsSlice()...)
		w.text(text(w.value))
	}
}

func (w *writer) part(p *schemaPart, r *policy.Reading) {
	w.number(uint64(r.State)<<1 | flagIf(r.Sent != "", 1))
	switch {
	case r.State == policy.Faulty:
		w.text(r.Value)
	case r.State != policy.Present:
	case p.show != whole:
		w.hidden(r.Value, cmp.Or(r.Sent, r.Value), p.show)
	default:
		w.text(r.Value)
		if r.Sent != "" {
			w.text(r.Sent)
		}
	}
}

// maxShown bounds the visible form of a hidden value, in bytes.
const maxShown = 128

// hidden appends the hash of a value and its visible form.
func (w *writer) hidden(value, sent string, s show) {
	h := maphash.String(w.seed, value)
	key := h ^ uint64(s)<<positionBits // differs from the hash of a text that is not hidden
	if w.again(key) {
		return
	}
	var raw [hashLen]byte
	binary.LittleEndian.PutUint64(raw[:], h)
	shown := ""
	if s == short {
		shown = policy.Shorten(sent)
	}
	w.literal(key, text(raw[:]), shown[:min(len(shown), maxShown)])
}

func (w *writer) field(f *policy.RequestField, values []string) {
	values = values[:min(len(values), maxValues)]
	w.number(uint64(len(values)))
	for _, v := range values {
		v = strings.TrimSpace(v)
		if n, err := strconv.ParseUint(v, 10, numberBits); err == nil && f.Cost {
			w.number(n + 1)
			continue
		}
		w.number(0)
		w.chunk.data = binary.LittleEndian.AppendUint64(w.chunk.data, maphash.String(w.seed, v))
	}
}

// literalAt returns the text at the start of data. n is the size of the text with its length.
func literalAt(data []byte) (s string, n int) {
	length, used := binary.Uvarint(data)
	n = used + int(length>>1)
	return text(data[used:n]), n
}

// text returns b as a string without copying. The string is valid while b does not change.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
