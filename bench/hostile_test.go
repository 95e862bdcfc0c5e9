package main

import (
	"bytes"
	"hash/fnv"
	"testing"
)

// The lines are the same in every run, and all can be read: the works have them seen to the last.
func TestHostileLines(t *testing.T) {
	const count = 25_000
	var sums [2]uint64
	for i := range sums {
		h := fnv.New64a()
		if err := hostileLines(h, count); err != nil {
			t.Fatal(err)
		}
		sums[i] = h.Sum64()
	}
	if sums[0] != sums[1] {
		t.Error("they differ from run to run")
	}
	var all bytes.Buffer
	if err := hostileLines(&all, count); err != nil {
		t.Fatal(err)
	}
	for what, part := range map[string]string{
		"quotes": `\"quoted\"`, "IPv6": "2001:db8:", "binary": `"\x16\x03`, "nothing": `"-" 408 - "-"`,
		"the last time": "20/Nov/2026:23:59:", "100 KB": string(bytes.Repeat([]byte("a/"), 50_000)),
	} {
		if !bytes.Contains(all.Bytes(), []byte(part)) {
			t.Errorf("there is no %s", what)
		}
	}
	if n := bytes.Count(all.Bytes(), []byte("\n")); n != count {
		t.Errorf("%d lines", n)
	}
}
