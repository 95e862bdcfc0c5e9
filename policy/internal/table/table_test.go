package table

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// Tables of any size, with several shapes, find the entries that were added, and no others.
func TestTable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		shapes := []Shape{{Exact: 1}, {Exact: 2}, {Exact: 1, Network: Network{1, false, 24}}}
		type subject struct {
			of   Shape
			text string
		}
		var all Table[string]
		model := make(map[subject]Entry)
		for i := range 1 << r.IntN(12) {
			is := subject{shapes[r.IntN(len(shapes))], fmt.Sprint("/", r.IntN(3000))}
			value, until := fmt.Sprint("tier-", r.IntN(5)), r.Int64()
			was, known := model[is]
			first, twice := all.Add(is.of, []byte(is.text), value, until, i)
			if twice != known || known && first != int(was.Item) {
				t.Fatalf("seed %d: %v was added before: %v at %d, want %v at %d", seed, is, twice, first, known, was.Item)
			}
			if !known {
				model[is] = Entry{Until: until, Item: uint32(i)}
			}
		}
		all.Sort()
		for _, of := range shapes {
			for i := range 3000 {
				text := fmt.Sprint("/", i)
				want, known := model[subject{of, text}]
				got := all.set(of).find(hashOf([]byte(text)))
				if (got != nil) != known || known && (got.Item != want.Item || got.Until != want.Until) {
					t.Fatalf("seed %d: %s of %v is %+v, want %+v, %v", seed, text, of, got, want, known)
				}
			}
		}
		if len(all.values) > 5 || all.set(Shape{Exact: 4}) != nil {
			t.Errorf("seed %d: %d different tiers", seed, len(all.values))
		}
	}
}

// Shapes that name more parts come first, then those that name earlier parts.
func TestOrder(t *testing.T) {
	t.Parallel()
	var all Table[int]
	shapes := []uint32{0b1001, 0b0110, 0b0111, 0b0001, 0b1010, 0b1000}
	for i, of := range shapes {
		all.Add(Shape{Exact: of}, []byte("/"), i, 0, i)
	}
	all.Sort()
	for i, want := range []uint32{0b0111, 0b1001, 0b0110, 0b1010, 0b0001, 0b1000} {
		if got := all.sets[i].shape.Exact; got != want {
			t.Errorf("set %d names the parts %04b, want %04b", i, got, want)
		}
	}
}
