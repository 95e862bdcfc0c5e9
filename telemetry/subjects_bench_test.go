package telemetry

import (
	"fmt"
	"testing"
)

// BenchmarkSubjects is what it costs to count a request of one subject, of one of a few, and of one that
// was never there before, and to write what is posted of ten rules with many subjects each.
func BenchmarkSubjects(b *testing.B) {
	keys := make([]string, 1<<20)
	for i := range keys {
		keys[i] = fmt.Sprintf("pages/2001:db8::%x", i)
	}
	for _, n := range []int{1, 200, len(keys)} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s := newSubjects()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.count(0, "pages", keys[i%n], i%3 == 0, noon.UnixMilli()+int64(i/1000))
			}
		})
	}
	b.Run("export", func(b *testing.B) {
		s := newSubjects()
		for i := range 1 << 20 {
			s.count(0, fmt.Sprintf("rule-%d", i%10), keys[min(i%1000, i%77777)], i%3 == 0, noon.UnixMilli()+int64(i)*3)
		}
		at := noon.Add(3e6 * (1 << 20))
		b.ReportAllocs()
		for b.Loop() {
			s.export(at)
		}
	})
}
