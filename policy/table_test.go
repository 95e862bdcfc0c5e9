package policy

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// What was added is found, and nothing else, in tables of any size and of several shapes.
func TestTable(t *testing.T) {
	t.Parallel()
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		shapes := []shape{{exact: 1}, {exact: 2}, {exact: 1, network: network{1, false, 24}}}
		type subject struct {
			of   shape
			text string
		}
		var all table[string]
		model := make(map[subject]slot)
		for i := range 1 << r.IntN(12) {
			is := subject{shapes[r.IntN(len(shapes))], fmt.Sprint("/", r.IntN(3000))}
			says, until := fmt.Sprint("tier-", r.IntN(5)), r.Int64()
			was, known := model[is]
			first, twice := all.add(is.of, []byte(is.text), says, until, i)
			if twice != known || known && first != int(was.item) {
				t.Fatalf("seed %d: %v is there: %v at %d, want %v at %d", seed, is, twice, first, known, was.item)
			}
			if !known {
				model[is] = slot{until: until, item: uint32(i)}
			}
		}
		all.sort()
		for _, of := range shapes {
			for i := range 3000 {
				text := fmt.Sprint("/", i)
				want, known := model[subject{of, text}]
				got := all.set(of).find(hashSubject([]byte(text)))
				if (got != nil) != known || known && (got.item != want.item || got.until != want.until) {
					t.Fatalf("seed %d: %s of %v is %+v, want %+v, %v", seed, text, of, got, want, known)
				}
			}
		}
		if len(all.says) > 5 || all.set(shape{exact: 4}) != nil {
			t.Errorf("seed %d: %d different tiers", seed, len(all.says))
		}
	}
}
