package accesslog

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"strings"
)

var errJSON = errors.New("not a JSON object, or one that is cut off")

// deepest is how deep objects and arrays may stand in each other: no log comes near, and a line of a
// million brackets costs no more than one of letters.
const deepest = 64

// value is what stands at a path: the text of a string with its quotes, of a number, an array, an
// object. It is null where the line has nothing else, and nil where it has not even that.
type value struct {
	raw  []byte
	rank uint8 // which of several paths it is from
}

// paths tells at which keys of an object values stand that are wanted, and below which.
type paths struct {
	keys  []key
	first [buckets]uint16 // one more than the index of a key, whose others of the bucket follow
}

const buckets = 64

type key struct {
	name  string
	slots []slot // that want the value
	below *paths // nil if nothing below is wanted
	next  uint16
}

type slot struct {
	at   int
	rank uint8
}

// at returns the key of a name, made if it was not there.
func (p *paths) at(name string) *key {
	for i := range p.keys {
		if p.keys[i].name == name {
			return &p.keys[i]
		}
	}
	first := &p.first[bucket(len(name), name[0], name[len(name)-1])]
	p.keys = append(p.keys, key{name: name, next: *first})
	*first = uint16(len(p.keys))
	return &p.keys[len(p.keys)-1]
}

// add wants the value at a path with dots, which may stand between names of objects or be a part of a
// name: "client.ip" is both {"client":{"ip":…}} and {"client.ip":…}. Of several paths of a slot the
// one of the lowest rank counts.
func (p *paths) add(path string, at int, rank uint8) {
	k := p.at(path)
	k.slots = append(k.slots, slot{at, rank})
	for i, c := range path {
		if c == '.' && i > 0 && i < len(path)-1 {
			k := p.at(path[:i])
			if k.below == nil {
				k.below = &paths{}
			}
			k.below.add(path[i+1:], at, rank)
		}
	}
}

// find returns the key of a name, nil if nothing of it is wanted.
func (p *paths) find(name []byte) *key {
	if len(name) == 0 {
		return nil
	}
	for i := p.first[bucket(len(name), name[0], name[len(name)-1])]; i > 0; i = p.keys[i-1].next {
		if k := &p.keys[i-1]; k.name == string(name) {
			return k
		}
	}
	return nil
}

// bucket tells most names apart by their length and ends.
func bucket(n int, first, last byte) int { return (n*5 + int(first)*3 + int(last)) % buckets }

// read fills values from a line, which has to be one whole object. Where a key comes twice the last
// counts, as in every common reader of JSON, so that Sluice sees what others see in the same log.
func (p *paths) read(line []byte, values []value) bool {
	clear(values)
	i := blank(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	i = p.object(line, i, values, 1)
	return i >= 0 && blank(line, i) == len(line)
}

// object reads the object that begins at i, and returns where it ends, or -1.
func (p *paths) object(b []byte, i int, values []value, depth int) int {
	i = blank(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return -1
		}
		begin, end := i+1, stringEnd(b, i+1)
		if end < 0 {
			return -1
		}
		if i = colon(b, end); i < 0 {
			return -1
		}
		k := p.named(b[begin : end-1])
		switch {
		case k == nil:
			i = skip(b, i, depth)
		case k.below != nil && b[i] == '{':
			if depth == deepest {
				return -1
			}
			i = k.below.object(b, i, values, depth+1)
		default:
			from := i
			if i = skip(b, i, depth); i < 0 {
				return -1
			}
			for _, s := range k.slots {
				v := &values[s.at]
				if v.raw == nil || v.raw[0] == 'n' || b[from] != 'n' && s.rank <= v.rank {
					v.raw, v.rank = b[from:i], s.rank
				}
			}
		}
		if i < 0 {
			return -1
		}
		i = blank(b, i)
		if i >= len(b) {
			return -1
		}
		switch b[i] {
		case '}':
			return i + 1
		case ',':
			i = blank(b, i+1)
		default:
			return -1
		}
	}
}

// named finds a key as it is written in the line, where a program may have escaped it.
func (p *paths) named(written []byte) *key {
	for _, c := range written {
		if c == '\\' {
			var room [128]byte
			if len(written) > len(room) {
				return nil // six bytes at most are one: a wanted name is shorter
			}
			return p.find(unescape(room[:0], written))
		}
	}
	return p.find(written)
}

// colon returns where the value begins that belongs to the key that ends at i, or -1.
func colon(b []byte, i int) int {
	i = blank(b, i)
	if i >= len(b) || b[i] != ':' {
		return -1
	}
	if i = blank(b, i+1); i >= len(b) {
		return -1
	}
	return i
}

func blank(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skip returns where the value ends that begins at i, in an object at a depth, or -1 if it is none.
func skip(b []byte, i, depth int) int {
	var objects uint64 // bit n is set if what is open at depth n is an object
	outer := depth
	for {
		// At i stands a value, after white space.
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; c {
		case '"':
			i = stringEnd(b, i+1)
		case '{', '[':
			if depth == deepest {
				return -1
			}
			inside := blank(b, i+1)
			if inside < len(b) && b[inside] == c+2 { // the closing ones stand two behind in ASCII
				i = inside + 1
				break
			}
			if c == '[' {
				objects &^= 1 << depth
				depth++
				i = inside
				continue
			}
			objects |= 1 << depth
			depth++
			if i = member(b, inside); i < 0 {
				return -1
			}
			continue
		case 't':
			i = literal(b, i, "true")
		case 'f':
			i = literal(b, i, "false")
		case 'n':
			i = literal(b, i, "null")
		default:
			i = numberEnd(b, i)
		}
		// At i the value has ended, and with it perhaps what it is in.
		for {
			if i < 0 || depth == outer {
				return i
			}
			i = blank(b, i)
			if i >= len(b) {
				return -1
			}
			object := objects>>(depth-1)&1 == 1
			if b[i] == ',' {
				i = blank(b, i+1)
				if object {
					if i = member(b, i); i < 0 {
						return -1
					}
				}
				break
			}
			if object && b[i] != '}' || !object && b[i] != ']' {
				return -1
			}
			i++
			depth--
		}
	}
}

// member returns where the value of the key begins that stands at i, or -1.
func member(b []byte, i int) int {
	if i >= len(b) || b[i] != '"' {
		return -1
	}
	if i = stringEnd(b, i+1); i < 0 {
		return -1
	}
	return colon(b, i)
}

func literal(b []byte, i int, word string) int {
	if end := i + len(word); end <= len(b) && string(b[i:end]) == word {
		return end
	}
	return -1
}

func numberEnd(b []byte, i int) int {
	digits := func() bool {
		from := i
		for i < len(b) && b[i]-'0' < 10 {
			i++
		}
		return i > from
	}
	if i < len(b) && b[i] == '-' {
		i++
	}
	zero := i < len(b) && b[i] == '0'
	from := i
	if !digits() || zero && i > from+1 {
		return -1
	}
	if i < len(b) && b[i] == '.' {
		i++
		if !digits() {
			return -1
		}
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		if !digits() {
			return -1
		}
	}
	return i
}

// stringEnd returns what follows the quote that ends the string whose first byte is at i, or -1. Eight
// bytes at a time are looked at for one that is a quote, a backslash, or no character of a string.
func stringEnd(b []byte, i int) int {
	const ones = 0x0101010101010101
	for {
		for i+8 <= len(b) {
			w := binary.LittleEndian.Uint64(b[i:])
			quote, slash := w^'"'*ones, w^'\\'*ones
			// A byte below n borrows into its highest bit. Bytes above the lowest hit may be told
			// wrongly, and are not looked at.
			hit := ((quote-ones)&^quote | (slash-ones)&^slash | (w-' '*ones)&^w) & (0x80 * ones)
			if hit != 0 {
				i += bits.TrailingZeros64(hit) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return -1
		}
		switch c := b[i]; {
		case c == '"':
			return i + 1
		case c < ' ':
			return -1
		case c != '\\':
			i++ // near the end of the line
		case i+1 < len(b) && strings.IndexByte(`"\/bfnrt`, b[i+1]) >= 0:
			i += 2
		case i+1 < len(b) && b[i+1] == 'u' && hex4(b[i+2:]) >= 0:
			i += 6
		default:
			return -1
		}
	}
}
