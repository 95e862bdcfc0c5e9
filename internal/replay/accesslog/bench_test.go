package accesslog

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkStructured reads the golden lines of a format that can be read.
func BenchmarkStructured(b *testing.B) {
	files, _ := filepath.Glob("testdata/structured/*.log")
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".log")
		if strings.Contains(name, "~") {
			continue
		}
		b.Run(name, func(b *testing.B) {
			f, err := Lookup(name, Options{})
			if err != nil {
				b.Fatal(err)
			}
			log, err := os.ReadFile(file)
			if err != nil {
				b.Fatal(err)
			}
			line, _, _ := bytes.Cut(log, []byte("\n"))
			for line[0] == '#' {
				_, log, _ = bytes.Cut(log, []byte("\n"))
				line, _, _ = bytes.Cut(log, []byte("\n"))
			}
			var e Entry
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Parse(line, &e); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
