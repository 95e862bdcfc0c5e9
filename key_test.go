package sluice_test

import (
	"crypto/sha256"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/sluicehq/sluice"
)

func TestAppendKeyPart(t *testing.T) {
	for _, line := range texts(t, "testdata/keys.txt") {
		if got := string(sluice.AppendKeyPart([]byte("before/"), line[0])); got != "before/"+line[1] {
			t.Errorf("%q became %q, want %q", line[0], got, "before/"+line[1])
		}
	}
	longest, accents := strings.Repeat("x", sluice.MaxKeyPart), strings.Repeat("é", 1000)
	hashed := func(s string) string { return fmt.Sprintf("#%x", sha256.Sum256([]byte(s)))[:33] }
	for value, want := range map[string]string{
		longest: longest, longest + "x": hashed(longest + "x"), accents: hashed(accents), strings.Repeat("/", 128): strings.Repeat("%2F", 128),
	} {
		if got := string(sluice.AppendKeyPart(nil, value)); got != want {
			t.Errorf("%.40q became %q, want %q", value, got, want)
		}
	}
}

// FuzzAppendKeyPart: short values can be read back, so that no two give the same, and
// nothing that comes out means anything in a key.
func FuzzAppendKeyPart(f *testing.F) {
	for _, s := range []string{"", "a/b", "{a}", "%2F", "a%", "\x00\xff", "#0123", "é!", strings.Repeat("{", 128), strings.Repeat("a", 129)} {
		f.Add(s, s+"a")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		one, two := string(sluice.AppendKeyPart(nil, a)), string(sluice.AppendKeyPart(nil, b))
		if (one == two) != (a == b) {
			t.Fatalf("%q and %q became %q and %q", a, b, one, two)
		}
		for _, c := range []byte(one) {
			if c <= ' ' || c > '~' || strings.IndexByte("/{}!*?[]\"'\\", c) >= 0 {
				t.Fatalf("%q became %q, which has a %q", a, one, c)
			}
		}
		if len(a) > sluice.MaxKeyPart {
			if len(one) != 33 || one[0] != '#' {
				t.Fatalf("%q, which is long, became %q", a, one)
			}
			return
		}
		if back, err := url.PathUnescape(one); err != nil || back != a || strings.HasPrefix(one, "#") {
			t.Fatalf("%q became %q, which reads as %q, %v", a, one, back, err)
		}
	})
}
