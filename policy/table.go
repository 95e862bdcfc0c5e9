package policy

import (
	"cmp"
	"math/bits"
	"slices"
)

// table says something of subjects: of those with an override what it says, of those in a tier
// which. It is never changed. Its sets stand in the order in which they are asked.
type table[V any] []tableSet[V]

// tableSet has the subjects of one shape, by their texts.
type tableSet[V any] struct {
	shape
	bySubject map[string]row[V]
}

type row[V any] struct {
	says  V
	until int64 // in microseconds since the Unix epoch; 0: for ever
	item  int   // of the list that the table was made of
}

// shape is which parts of a key a subject names, and which of them by a network.
type shape struct {
	exact   uint32 // bit i: part i of the key is named, and not "*"
	network network
}

// set returns the subjects of a shape.
func (t table[V]) set(of shape) map[string]row[V] {
	for i := range t {
		if t[i].shape == of {
			return t[i].bySubject
		}
	}
	return nil
}

// add adds an entry, or reports the one that its subject has.
func (t *table[V]) add(of shape, subject string, e row[V]) (first row[V], twice bool) {
	set := t.set(of)
	if set == nil {
		set = make(map[string]row[V])
		*t = append(*t, tableSet[V]{of, set})
	}
	if first, twice = set[subject]; !twice {
		set[subject] = e
	}
	return first, twice
}

// sort orders the sets: those that name more parts are asked first, then those that name earlier
// ones, and of these addresses before networks, and longer prefixes before shorter ones.
func (t table[V]) sort() {
	slices.SortFunc(t, func(a, b tableSet[V]) int {
		return cmp.Or(bits.OnesCount32(b.exact)-bits.OnesCount32(a.exact), cmp.Compare(a.exact, b.exact),
			cmp.Compare(a.network.part, b.network.part), b.network.bits-a.network.bits)
	})
}

// find returns what is said of the subject that k has built at the time of the request.
func (t table[V]) find(k *keyText, s *scratch) (e row[V], found bool) {
	for i := range t {
		if e, found = t[i].bySubject[string(k.subjectOf(&t[i].shape))]; found && (e.until == 0 || s.clock() < e.until) {
			return e, true
		}
	}
	return row[V]{}, false
}
