package fields

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// naiveLoose does what addLoose does, but splits the whole text in both ways.
func naiveLoose(text, name string) (Member, Presence) {
	var f finding
	for _, separators := range []string{"&", "&;"} {
		for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
			written, value, _ := strings.Cut(pair, "=")
			var m Members
			of, ok := m.unescapedName(written)
			if len(written) > maxFieldName || !ok {
				continue
			}
			of = strings.ReplaceAll(strings.ToValidUTF8(of, ""), "\uFFFD", "")
			if namesCharset(of, value) {
				f.state = Garbled
			}
			if like := fieldLikeness(of, name); like != different {
				f.add(Member{Text: value, kind: formMember}, like)
			}
		}
	}
	return f.result(false)
}

// In any text, addLoose finds the same as naiveLoose, which splits the whole text.
func FuzzLoose(f *testing.F) {
	for _, s := range []string{
		`{"a":"&user_name=alice&b="}`, `;user_name=a;user_name=b`, `user_name=a`, `user_name=a;b`, `user_name=a;b&user_name=a`, `&user_name=;&user[name]=x`, `a=user_name=b&%75ser_name=c`,
		`&_charset_=latin1&user_name=x`, `&%5fcharset_=x`, `x;y&user_name=1;user_name=1`, "&user\xff_name=x", "&USER.NAME=x&user_name=x", `==&&;;user_name==`, `user_name;x=y`, "\u017ferver&u\u017fer_name=x",
	} {
		f.Add(s, "user_name")
	}
	f.Add("&\u00e9=x", "\u00c9")
	f.Add("&name=x;-name=x", "_name")
	f.Fuzz(func(t *testing.T, text, name string) {
		if name == "" || !strings.ContainsFunc(name, letter) || !utf8.ValidString(name) || len(text) > 4000 {
			return
		}
		var got finding
		m := Members{loose: text}
		m.addLoose(&got, name)
		of, state := got.result(false)
		if want, wanted := naiveLoose(text, name); state != wanted || state == Present && of.Text != want.Text {
			t.Fatalf("%q in %q is %q, %d, want %q, %d", name, text, of.Text, state, want.Text, wanted)
		}
	})
}
