// Package table has the settings of a policy for single subjects: overrides and tiers. A Table is a hash table that
// takes little memory for hundreds of thousands of subjects.
package table

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// Table maps subjects to values, such as the tier of each. Do not change it after Sort.
type Table[V comparable] struct {
	values []V       // the values, each once
	sets   []set     // the sets, in the order in which Find searches them
	at     map[V]int // the index of each value in values, counted from 1; nil after Sort
}

// set has the subjects of one shape. It is a hash table with open addressing. It is at most half full, and its
// slots have no pointers. With very many subjects, a lookup accesses memory outside the caches once; a lookup in a
// map does so several times.
type set struct {
	shape Shape
	slots []Entry // the length is a power of two
	used  int
}

// Entry is an entry of a table.
type Entry struct {
	subject hash
	Until   int64  // in microseconds since the Unix epoch; 0 if the entry never expires
	value   uint32 // the index in Table.values, counted from 1; 0 if the slot is free
	Item    uint32 // the index in the list from which the table was made
}

// hash is a keyed hash of the text of a subject. It has 128 bits, so in practice no two texts have the same hash.
type hash [2]uint64

// seeds are the same for all tables, so that hashes of different tables can be compared.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashOf(subject []byte) hash {
	return hash{maphash.Bytes(seeds[0], subject), maphash.Bytes(seeds[1], subject)}
}

// Shape is the set of key parts that a subject names, and the part that it names by a network.
type Shape struct {
	Exact   uint32 // bit i is set if part i of the key has a value, and not "*"
	Network Network
}

// Network is the key part that is named by a network, and the size of the network. The zero value means that no
// part is named by a network.
type Network struct {
	Part int // counted from 1
	Six  bool
	Bits int
}

// Empty reports whether the table has no entries.
func (t *Table[V]) Empty() bool { return len(t.sets) == 0 }

// set returns the subjects of a shape, or nil.
func (t *Table[V]) set(of Shape) *set {
	for i := range t.sets {
		if t.sets[i].shape == of {
			return &t.sets[i]
		}
	}
	return nil
}

// Add adds the value of a subject. The parameter item is the index of the subject in the list from which the table
// is made. If the subject already has an entry, Add changes nothing, and returns the item of that entry and true.
func (t *Table[V]) Add(of Shape, subject []byte, value V, until int64, item int) (first int, twice bool) {
	in := t.set(of)
	if in == nil {
		t.sets = append(t.sets, set{shape: of, slots: make([]Entry, 2)})
		in = &t.sets[len(t.sets)-1]
	}
	hash := hashOf(subject)
	if known := in.find(hash); known != nil {
		return int(known.Item), true
	}
	if t.at == nil {
		t.at = make(map[V]int)
	}
	if t.at[value] == 0 {
		t.values = append(t.values, value)
		t.at[value] = len(t.values)
	}
	in.add(Entry{hash, until, uint32(t.at[value]), uint32(item)})
	return 0, false
}

// Sort sorts the sets for Find. Call it after the last Add. Shapes that name more parts come first. Of shapes with
// the same number of parts, those that name earlier parts come first. Of shapes with the same parts, addresses come
// before networks, and longer prefixes before shorter ones.
func (t *Table[V]) Sort() {
	t.at = nil
	slices.SortFunc(t.sets, func(a, b set) int {
		return cmp.Or(bits.OnesCount32(b.shape.Exact)-bits.OnesCount32(a.shape.Exact), cmp.Compare(bits.Reverse32(b.shape.Exact), bits.Reverse32(a.shape.Exact)),
			cmp.Compare(a.shape.Network.Part, b.shape.Network.Part), b.shape.Network.Bits-a.shape.Network.Bits)
	})
}

// Find returns the first entry of a subject that has not expired, or nil. The function subject returns the text of
// the subject for a shape, as passed to Add. The function now returns the time in microseconds since the Unix epoch.
// It is called only for entries that expire.
func (t *Table[V]) Find(subject func(*Shape) []byte, now func() int64) *Entry {
	for i := range t.sets {
		in := &t.sets[i]
		if e := in.find(hashOf(subject(&in.shape))); e != nil && (e.Until == 0 || now() < e.Until) {
			return e
		}
	}
	return nil
}

// Both calls the function do for each subject that is in both tables, with its values in the other table and in t,
// in the order of the items of t.
func (t *Table[V]) Both(other *Table[V], do func(theirs, value V)) {
	type pair struct {
		item          uint32
		theirs, value V
	}
	var all []pair
	for i := range t.sets {
		theirs := other.set(t.sets[i].shape)
		for j := range t.sets[i].slots {
			e := &t.sets[i].slots[j]
			if o := theirs.find(e.subject); e.value != 0 && o != nil {
				all = append(all, pair{e.Item, other.Value(o), t.Value(e)})
			}
		}
	}
	slices.SortFunc(all, func(a, b pair) int { return cmp.Compare(a.item, b.item) })
	for _, p := range all {
		do(p.theirs, p.value)
	}
}

// Values returns the values of the table, each once. Do not change them.
func (t *Table[V]) Values() []V { return t.values }

// Value returns the value of an entry.
func (t *Table[V]) Value(e *Entry) V { return t.values[e.value-1] }

// find returns the entry of a subject, or nil.
func (s *set) find(subject hash) *Entry {
	if s == nil {
		return nil
	}
	last := len(s.slots) - 1
	for i := int(subject[0]); ; i++ {
		if e := &s.slots[i&last]; e.subject == subject && e.value != 0 {
			return e
		} else if e.value == 0 {
			return nil
		}
	}
}

// add adds an entry for a new subject.
func (s *set) add(e Entry) {
	if s.used++; 2*s.used > len(s.slots) {
		old := s.slots
		s.slots = make([]Entry, 2*len(old))
		for i := range old {
			if old[i].value != 0 {
				s.insert(old[i])
			}
		}
	}
	s.insert(e)
}

func (s *set) insert(e Entry) {
	last := len(s.slots) - 1
	i := int(e.subject[0])
	for s.slots[i&last].value != 0 {
		i++
	}
	s.slots[i&last] = e
}
