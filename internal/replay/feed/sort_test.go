package feed

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/sluicehq/sluice/internal/replay/accesslog"
)

// Entries a little out of order, and those of a shuffled log, are sorted as a stable sort does it.
func TestSortByTime(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for _, disorder := range []int64{1, 30, 1_000_000} {
		for n := range 600 {
			entries := make([]*Entry, n)
			for i := range entries {
				entries[i] = &Entry{Entry: accesslog.Entry{Time: int64(i)/3 + r.Int64N(disorder)}}
			}
			want := slices.Clone(entries)
			slices.SortStableFunc(want, func(a, b *Entry) int { return cmp.Compare(a.Time, b.Time) })
			if sortByTime(entries); !slices.Equal(entries, want) {
				t.Fatalf("%d entries, out of order by up to %d: they are not as a stable sort has them", n, disorder)
			}
		}
	}
}
