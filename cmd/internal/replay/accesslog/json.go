package accesslog

import (
	"bytes"
	"errors"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

var errJSON = errors.New("not a JSON object, or one that is cut off")

// value is what stands at a path: the text of a string with its quotes, of a number, an array, an
// object. It is null where the line has nothing else, and nil where it has not even that.
type value struct {
	raw  []byte
	rank uint8 // which of several paths it is from
}

// paths tells at which keys of an object values stand that are wanted, and below which.
type paths map[string]*key

type key struct {
	slots []slot // that want the value
	below paths  // nil if nothing below is wanted
}

type slot struct {
	at   int
	rank uint8
}

// at returns the key of a name, made if it was not there.
func (p paths) at(name string) *key {
	if p[name] == nil {
		p[name] = &key{}
	}
	return p[name]
}

// add wants the value at a path with dots, which may stand between names of objects or be a part of a
// name: "client.ip" is both {"client":{"ip":…}} and {"client.ip":…}. Of several paths of a slot the
// one of the lowest rank counts.
func (p paths) add(path string, at int, rank uint8) {
	k := p.at(path)
	k.slots = append(k.slots, slot{at, rank})
	for i, c := range path {
		if c == '.' && i > 0 && i < len(path)-1 {
			k := p.at(path[:i])
			if k.below == nil {
				k.below = paths{}
			}
			k.below.add(path[i+1:], at, rank)
		}
	}
}

// read fills values from a line, which has to be one whole object. Where a key comes twice the last
// counts, as in every common reader of JSON, so that Sluice sees what others see in the same log.
func (p paths) read(line []byte, values []value) bool {
	clear(values)
	i := jsonscan.Space(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	i = p.object(line, i, values, 1)
	return i >= 0 && jsonscan.Space(line, i) == len(line)
}

// object reads the object that begins at i, and returns where it ends; a negative number if it is none.
func (p paths) object(b []byte, i int, values []value, depth int) int {
	i, more := jsonscan.First(b, i+1, '}')
	for more {
		end, at := jsonscan.Name(b, i)
		if at < 0 {
			return at
		}
		k := p.named(b[i+1 : end-1])
		if k != nil && k.below != nil && at < len(b) && b[at] == '{' && depth < jsonscan.MaxDepth {
			i = k.below.object(b, at, values, depth+1)
		} else if i = jsonscan.Value(b, at, depth); i >= 0 && k != nil {
			k.take(b[at:i], values)
		}
		if i < 0 {
			return i
		}
		i, more = jsonscan.Next(b, i, '}')
	}
	return i
}

// take puts a value into the slots that want it.
func (k *key) take(raw []byte, values []value) {
	for _, s := range k.slots {
		v := &values[s.at]
		if v.raw == nil || v.raw[0] == 'n' || raw[0] != 'n' && s.rank <= v.rank {
			v.raw, v.rank = raw, s.rank
		}
	}
}

// named finds a key as it is written in the line, where a program may have escaped it.
func (p paths) named(written []byte) *key {
	if bytes.IndexByte(written, '\\') < 0 {
		return p[string(written)]
	}
	var room [128]byte
	if len(written) > len(room) {
		return nil // six bytes at most are one: a wanted name is shorter
	}
	name, _ := jsonscan.Unescape(room[:0], written)
	return p[string(name)]
}
