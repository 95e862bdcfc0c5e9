package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The table and the pictures in docs are those that the algorithms produce now.
func TestUpToDate(t *testing.T) {
	const docs = "../../docs"
	dir := t.TempDir()
	text, err := os.ReadFile(filepath.Join(docs, "algorithms.md"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "algorithms.md"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(dir); err != nil {
		t.Fatal(err)
	}
	made, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(made) < 6 {
		t.Fatalf("only %q were made: %v", made, err)
	}
	for _, file := range made {
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(filepath.Join(docs, filepath.Base(file)))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("docs/%s is out of date (%v): run \"make pictures\"", filepath.Base(file), err)
		}
	}
}
