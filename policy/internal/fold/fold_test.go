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
)

const garbled = "(garbled)" // stands for what is no name

// name returns what AppendName makes of s, and garbled where it makes nothing of it.
func name(s string) string {
	got, ok := AppendName(nil, s)
	if !ok {
		return garbled
	}
	return string(got)
}

func TestNamesOfOneAccount(t *testing.T) {
	for _, same := range [][]string{
		{"alice", "Alice", " alice ", "ALICE\n", "\u3000\u00a0alice\u2003\u2028", "ａｌｉｃｅ", "álice", "a\u0301lice", "ⓐⓛⓘⓒⓔ", "ⱥłıçɇ", "al\u0130ce"},
		{
			"bob", "b\u20d0ob", "bob\ufe0f", "bo\u1ab0b", "bo\u1dc4b", "bo\ufe20b", "bo\U000e0100b", "bo\u0591b", "bo\u064bb", "bo\u3099b",
			"b\u200dob", "bo\u034fb", "\ufeffbob", "b\u00b7o\u0640b\u3164", "bob😀", "b\U0001d165ob",
		},
		{"a b", "a  b", "a\u00a0b", "a \u3000\tb", "A \u0301 B", "a\u200b \u200bb"},
		{"kim", "Kim", "\u212Aim"},
		{"straße", "STRAẞE", "strasse", "strase", "ſtraßſe", "straſs\u0301e"},
		{"mary", "Mary", "marü", "maru", "marÝ"},
		{"o ae oe d th l q n h t", "Ø Æ Œ Đ Þ Ł ĸ ŋ ħ ŧ", "ø æ œ ð Þ ł q Ŋ h Ŧ"},
		{"σίσυφος", "ΣΊΣΥΦΟΣ", "σισυφοσ", "ςιςυφος"},
		{"ᾳδης", "αδησ", "ᾼΔΗΣ"},
		{"Ꭰꮝ", "ꭰᏍ"},
		{"さくら", "サクラ", "ｻｸﾗ", "ざくら", "ｻﾞｸﾗ"},
		{"홍길동", "홍길동", "\u1112\u1169\u11bc길동"},
		{"שלום", "שָׁלוֹם", "שלומ"},
		{"محمد", "مُحَمَّد", "محـمد", "ﻣﺤﻤﺪ"},
		{"7", "٧", "۷", "७", "๗", "７", "⁷", "₇", "⑦", "❼"},
		{"й", "и", "И\u0306"},
		{"กเ", "เก", "ก"},
		{"½", "1/2", "1\u20442"},
		{"𠮷田", "𠀋田", "田"},
		{"o'neil", "O’Neil"},
	} {
		for _, s := range same {
			if got := name(s); got != name(same[0]) || got == garbled || got == "" {
				t.Errorf("%q is %q, and %q is %q", s, got, same[0], name(same[0]))
			}
		}
	}
}

func TestNamesOfSeveralAccounts(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{
		"alice", "alicé2", "alic", "a b", "ab", "a.b", "a-b", "a_b", "и", "н", "сom", "com", "林", "森", "कम", "मक",
		"さくら", "さくな", "홍", "공", "1", "2", "12", "σ", "s", "α", "a", "دا", "ما", "æ", "e", "þ", "t", "", "s2", "b", "d",
	} {
		got := name(s)
		if old, twice := seen[got]; twice {
			t.Errorf("%q and %q are both %q", s, old, got)
		}
		seen[got] = s
	}
}

// What servers read differently has no name of its own.
func TestNamesThatAreNone(t *testing.T) {
	for _, s := range []string{
		"alice\x00", "a\x01lice", "a\x7flice", "a\u0085\u0086", "a\xffb", "\xed\xa0\x80", "a\xc0\x80", "é\xc3", "\ufffd", "\ufdd0", "\ue000", "a\u0378",
		"\u0301", "é\x00", "\u200b", "😀", "𝒶lice", "a\u00adb", "\u0363lice", "α\u0345", "\U000f0000", "x" + strings.Repeat("é", maxName/2),
	} {
		if got := name(s); got != garbled {
			t.Errorf("%q is %q", s, got)
		}
	}
	for _, s := range []string{"", " ", "\t\u00a0\u3000"} {
		if got := name(s); got != "" {
			t.Errorf("%q is %q", s, got)
		}
	}
	if long := strings.Repeat("x", 64<<10); name(long) != long {
		t.Error("ASCII may be as long as bodies are")
	}
}

// TestNamesByUnicode holds every character against the rules of Unicode: neither case nor
// form nor marks make another name. utf8mb4_unicode_ci gives one weight to all characters
// beyond the basic plane.
func TestNamesByUnicode(t *testing.T) {
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

// TestNamesByRootCollation holds every character against the root collation of CLDR, which
// ICU has, and databases that use it.
func TestNamesByRootCollation(t *testing.T) {
	c := collate.New(language.Und, collate.Loose)
	var buf collate.Buffer
	seen := map[string]string{}
	equal := 0
	for r := rune(' '); r < 0x30000; r++ { // beyond, this library confuses weights
		got := name("|" + string(r) + "|")
		if got == garbled {
			continue
		}
		buf.Reset()
		key := string(c.KeyFromString(&buf, string(r)))
		old, twice := seen[key]
		if twice && old != got {
			t.Errorf("%U is %q, and what is equal to it is %q", r, got, old)
		}
		if twice {
			equal++
		}
		seen[key] = got
	}
	if equal < 5000 {
		t.Errorf("only %d characters are equal to others: that cannot be all", equal)
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
			t.Fatalf("%q is %q, which is refused", s, text)
		}
	})
}

// BenchmarkName folds names of one account: the usual ones, and the dearest of each kind.
func BenchmarkName(b *testing.B) {
	for _, bm := range []struct{ name, text string }{
		{"ascii", "alice.liddell@example.com"},
		{"accents", "Andrés Ñúñez"},
		{"hangul", "홍길동"},
		{"1KB-ascii", strings.Repeat("x", 1024)},
		{"1KB-spaces", strings.Repeat(" ", 1024)},
		{"1KB-hangul", strings.Repeat("힣", 341)},
		{"1KB-ligatures", strings.Repeat("ﷲ", 341)},
		{"1KB-long-words", strings.Repeat("ﷻ", 341)},
		{"1KB-marks", "x" + strings.Repeat("\u0301", 511)},
		{"1KB-emoji", "x" + strings.Repeat("😀", 255)},
		{"1KB-late", strings.Repeat("x", 1022) + "é"},
		{"64KB-ascii", strings.Repeat("x", 64<<10)},
		{"64KB-spaces", strings.Repeat(" ", 64<<10)},
		{"64KB-late", strings.Repeat("x", 64<<10-2) + "é"},
		{"64KB-FDFA", strings.Repeat("ﷺ", 64<<10/3)},
	} {
		b.Run(bm.name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = AppendName(dst[:0], bm.text)
			}
		})
	}
}
