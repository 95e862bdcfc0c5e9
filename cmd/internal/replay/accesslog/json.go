package accesslog

import (
	"bytes"
	"errors"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

var errJSON = errors.New("not a JSON object, or one that is cut off")

// value is the value at a path. The field raw has its JSON text; a string has its quotes. The text is null if the
// line has only null at the path, and nil if the line does not have the path.
type value struct {
	raw  []byte
	rank uint8 // the rank of the path that the value is from
}

// paths has the wanted keys of an object, and those with wanted values below them.
type paths map[string]*key

type key struct {
	slots []slot // the slots that take the value
	below paths  // nil if no value below is wanted
}

type slot struct {
	at   int
	rank uint8
}

// at returns the key with the given name, and adds it if it is missing.
func (p paths) at(name string) *key {
	if p[name] == nil {
		p[name] = &key{}
	}
	return p[name]
}

// add adds a path. The slot for its value has the given index. A dot in the path may separate names of objects or be
// part of a name: "client.ip" is both {"client":{"ip":…}} and {"client.ip":…}. If a line has several paths of a slot,
// the one with the lowest rank counts.
func (p paths) add(path string, index int, rank uint8) {
	k := p.at(path)
	k.slots = append(k.slots, slot{index, rank})
	for i, c := range path {
		if c == '.' && i > 0 && i < len(path)-1 {
			k := p.at(path[:i])
			if k.below == nil {
				k.below = paths{}
			}
			k.below.add(path[i+1:], index, rank)
		}
	}
}

// read fills values from a line, which has to be one whole object. If a key comes twice, the last one counts. All
// common JSON parsers do so, so Sluice reads the same values from a log as other programs.
func (p paths) read(line []byte, values []value) bool {
	clear(values)
	i := jsonscan.Space(line, 0)
	if i >= len(line) || line[i] != '{' {
		return false
	}
	i = p.object(line, i, values, 1)
	return i >= 0 && jsonscan.Space(line, i) == len(line)
}

// object reads the object that begins at i, and returns the index of its end, or a negative number if no object
// begins there.
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

// take puts a value into the key's slots.
func (k *key) take(raw []byte, values []value) {
	for _, s := range k.slots {
		v := &values[s.at]
		if v.raw == nil || v.raw[0] == 'n' || raw[0] != 'n' && s.rank <= v.rank {
			v.raw, v.rank = raw, s.rank
		}
	}
}

// named finds the key for a name as it is written in the line. The program that wrote the line may have escaped the
// name.
func (p paths) named(written []byte) *key {
	if bytes.IndexByte(written, '\\') < 0 {
		return p[string(written)]
	}
	var room [longestField]byte
	name, _ := jsonscan.Unescape(room[:0], written)
	return p[string(name)]
}
