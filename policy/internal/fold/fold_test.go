package fold

import (
	"bytes"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/collate"
	"golang.org/x/text/language"
	"golang.org/x/text/unicode/norm"

	"github.com/sluicehq/sluice/internal/testkit"
)

const garbled = "(garbled)" // stands for a text that is not a name

// name returns the result of AppendName for s, or garbled if AppendName rejects it.
func name(s string) string {
	got, ok := AppendName(nil, s)
	if !ok {
		return garbled
	}
	return string(got)
}

// namesIn returns the names of a list in testdata/names.txt.
func namesIn(text string) (all []string) {
	for part := range strings.SplitSeq(text, " | ") {
		all = append(all, testkit.Unquoted(part))
	}
	return all
}

func TestNamesOfOneAccount(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/names.txt", "names of one account").Rows(t) {
		for _, s := range append(namesIn(row.Want), row.In) {
			if got := name(s); got != name(row.In) || got == garbled || got == "" {
				t.Errorf("%q is %q, and %q is %q", s, got, row.In, name(row.In))
			}
		}
	}
}

func TestNamesOfSeveralAccounts(t *testing.T) {
	t.Parallel()
	seen := map[string]string{}
	for _, s := range namesIn(testkit.SectionOf(t, "testdata/names.txt", "names of several accounts").Rows(t)[0].In) {
		got := name(s)
		if old, twice := seen[got]; twice {
			t.Errorf("%q and %q are both %q", s, old, got)
		}
		seen[got] = s
	}
}

// A text that servers read differently is not a name.
func TestNamesThatAreNone(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/names.txt", "names that are none").Rows(t) {
		if got := name(row.In); got != row.Want {
			t.Errorf("%q is %q, want %q", row.In, got, row.Want)
		}
	}
	if s := "x" + strings.Repeat("é", maxName/2); name(s) != garbled {
		t.Errorf("a name of %d bytes is %q", len(s), name(s))
	}
	if long := strings.Repeat("x", 64<<10); name(long) != long {
		t.Error("a long ASCII text is not a name")
	}
}

// TestNamesByUnicode checks every character by the rules of Unicode: case, normalization form and marks do not make a
// different name. Characters beyond the basic plane are ignored, because utf8mb4_unicode_ci gives all of them the same
// weight.
func TestNamesByUnicode(t *testing.T) {
	t.Parallel()
	n := 0
	for r := rune(1); r <= unicode.MaxRune; r++ {
		s := "|" + string(r) + "|"
		got := name(s)
		if got == garbled {
			continue
		}
		n++
		if name(got) != got {
			t.Errorf("%U is %q, and that is %q", r, got, name(got))
		}
		for _, o := range []string{
			strings.ToUpper(s), strings.ToLower(s), strings.ToTitle(s), "|" + string(unicode.SimpleFold(r)) + "|",
			norm.NFC.String(s), norm.NFD.String(s), norm.NFKC.String(s), norm.NFKD.String(s), "|" + string(r) + "\u0301|",
		} {
			if name(o) != got && name(o) != garbled {
				t.Errorf("%U is %q, and %q is %q", r, got, o, name(o))
			}
		}
		if (unicode.Is(unicode.M, r) || unicode.Is(unicode.Cf, r) || r > 0xFFFF) && got != "||" {
			t.Errorf("%U is %q", r, got)
		}
	}
	if n < 100_000 {
		t.Errorf("only %d characters are read", n)
	}
}

// TestNamesByRootCollation checks every character by the root collation of CLDR, which ICU uses, and databases with
// ICU.
func TestNamesByRootCollation(t *testing.T) {
	t.Parallel()
	c := collate.New(language.Und, collate.Loose)
	var buf collate.Buffer
	seen := map[string]string{}
	equal := 0
	for r := rune(' '); r < 0x30000; r++ { // beyond, package collate confuses weights
		got := name("|" + string(r) + "|")
		if got == garbled {
			continue
		}
		buf.Reset()
		key := string(c.KeyFromString(&buf, string(r)))
		old, twice := seen[key]
		if twice && old != got {
			t.Errorf("%U is %q, and a character that is equal to it is %q", r, got, old)
		}
		if twice {
			equal++
		}
		seen[key] = got
	}
	if equal < 5000 {
		t.Errorf("only %d characters are equal to others: some are missing", equal)
	}
}

func TestNamesDoNotAllocate(t *testing.T) {
	nameWords()
	dst := make([]byte, 0, 200)
	for _, s := range []string{"Alice.Liddell@example.com", "Andrés Ñúñez", "홍길동", "サクラ"} {
		if n := testing.AllocsPerRun(100, func() { dst, _ = AppendName(dst[:0], s) }); n > 0 {
			t.Errorf("%q: %v allocations", s, n)
		}
	}
}

func FuzzName(f *testing.F) {
	for _, s := range []string{"", " Alice  B ", "ßſs\u0301ẞ", "\xff", "ﷺ ﷻ", "가\u1161힣", "a\u00a0\u0301 ", "😀", "เก", "½"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := AppendName([]byte("before"), s)
		text, found := bytes.CutPrefix(got, []byte("before"))
		if !found || !ok && len(text) > 0 {
			t.Fatalf("%q: %q, %v", s, got, ok)
		}
		if !ok {
			return
		}
		if !utf8.Valid(text) || len(text) > 11*len(s) {
			t.Fatalf("%q is %q", s, text)
		}
		for _, o := range []string{string(text), " " + s + "\n", strings.ToUpper(s), norm.NFD.String(s)} {
			if again := name(o); again != string(text) && again != garbled {
				t.Fatalf("%q is %q, and %q is %q", s, text, o, again)
			}
		}
		if again := name(string(text)); again == garbled && len(text) <= maxName {
			t.Fatalf("%q is %q, which is rejected", s, text)
		}
	})
}
