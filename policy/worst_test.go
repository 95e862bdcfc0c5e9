package policy

import (
	"fmt"
	"strings"
	"testing"
)

func BenchmarkWorstPaths(b *testing.B) {
	for name, unit := range map[string]string{
		"updir": "a/../", "dots": "./", "slash": "%2f", "mixed": "%2f%5c;", "mixed2": "%252f%5c;a/../", "params": ";a/", "backslash": `\a`, "dslash": "//", "hash": "%23%2f../", "x": "a%2f", "esc": "%41", "wide": "a/",
		"evil": "..;/%5c#%252f",
	} {
		for _, size := range []int{1 << 10, 8 << 10, 60 << 10} {
			p := "/" + strings.Repeat(unit, size/len(unit))
			b.Run(fmt.Sprintf("%s-%d", name, size), func(b *testing.B) {
				buf := new(viewBuf)
				n := 0
				for b.Loop() {
					n = len(views(p, false, buf))
				}
				b.ReportMetric(float64(n), "views")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(p)), "ns/byte")
			})
		}
	}
}
