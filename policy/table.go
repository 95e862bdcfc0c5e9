package policy

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"slices"
)

// table says something of subjects: of those with an override what it says, of those in a tier
// which. It is never changed once it is sorted.
type table[V comparable] struct {
	says []V        // each once
	sets []tableSet // in the order in which they are asked
	at   map[V]int  // where in says, until the table is sorted
}

// tableSet has the subjects of one shape. It is a hash table with open addressing, at most half
// full, of slots without pointers: to find one of very many takes a single access to memory that
// is not at hand, where a map takes several.
type tableSet struct {
	shape
	slots []slot // a power of two of them
	used  int
}

// slot is an entry of a table.
type slot struct {
	subject subjectHash
	until   int64  // in microseconds since the Unix epoch; 0: for ever
	says    uint32 // counted from 1; 0: the slot is free
	item    uint32 // of the list that the table was made of
}

// subjectHash stands for the text of a subject. It has 128 bits, and nobody knows the key, so that
// no two texts are taken for one.
type subjectHash [2]uint64

// seeds are the same for all tables, so that they can be compared.
var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashSubject(text []byte) subjectHash {
	return subjectHash{maphash.Bytes(seeds[0], text), maphash.Bytes(seeds[1], text)}
}

// shape is which parts of a key a subject names, and which of them by a network.
type shape struct {
	exact   uint32 // bit i: part i of the key is named, and not "*"
	network network
}

// set returns the subjects of a shape, or nil.
func (t *table[V]) set(of shape) *tableSet {
	for i := range t.sets {
		if t.sets[i].shape == of {
			return &t.sets[i]
		}
	}
	return nil
}

// add adds an entry of the list, or reports which one its subject has.
func (t *table[V]) add(of shape, subject []byte, says V, until int64, item int) (first int, twice bool) {
	set := t.set(of)
	if set == nil {
		t.sets = append(t.sets, tableSet{shape: of, slots: make([]slot, 2)})
		set = &t.sets[len(t.sets)-1]
	}
	hash := hashSubject(subject)
	if known := set.find(hash); known != nil {
		return int(known.item), true
	}
	if t.at == nil {
		t.at = make(map[V]int)
	}
	if t.at[says] == 0 {
		t.says = append(t.says, says)
		t.at[says] = len(t.says)
	}
	set.add(slot{hash, until, uint32(t.at[says]), uint32(item)})
	return 0, false
}

// sort ends the making of the table. Of its sets those that name more parts are asked first, then
// those that name earlier ones, and of these addresses before networks, and longer prefixes
// before shorter ones.
func (t *table[V]) sort() {
	t.at = nil
	slices.SortFunc(t.sets, func(a, b tableSet) int {
		return cmp.Or(bits.OnesCount32(b.exact)-bits.OnesCount32(a.exact), cmp.Compare(a.exact, b.exact),
			cmp.Compare(a.network.part, b.network.part), b.network.bits-a.network.bits)
	})
}

// find returns the entry that is in force at the time of the request for the subject that k has
// built, or nil.
func (t *table[V]) find(k *keyText, in *input) *slot {
	for i := range t.sets {
		set := &t.sets[i]
		if e := set.find(hashSubject(k.subjectOf(&set.shape))); e != nil && (e.until == 0 || in.clock() < e.until) {
			return e
		}
	}
	return nil
}

// of returns what an entry says.
func (t *table[V]) of(e *slot) V { return t.says[e.says-1] }

// find returns the entry of a subject, or nil.
func (s *tableSet) find(subject subjectHash) *slot {
	if s == nil {
		return nil
	}
	last := len(s.slots) - 1
	for i := int(subject[0]); ; i++ {
		if e := &s.slots[i&last]; e.subject == subject && e.says != 0 {
			return e
		} else if e.says == 0 {
			return nil
		}
	}
}

// add adds an entry whose subject has none.
func (s *tableSet) add(e slot) {
	if s.used++; 2*s.used > len(s.slots) {
		old := s.slots
		s.slots = make([]slot, 2*len(old))
		for i := range old {
			if old[i].says != 0 {
				s.place(old[i])
			}
		}
	}
	s.place(e)
}

func (s *tableSet) place(e slot) {
	last := len(s.slots) - 1
	i := int(e.subject[0])
	for s.slots[i&last].says != 0 {
		i++
	}
	s.slots[i&last] = e
}
