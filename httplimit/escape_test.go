package httplimit

import (
	"net/url"
	"testing"
)

func FuzzEscapedPath(f *testing.F) {
	for _, path := range []string{"", "*", "/", "/api/users/42", "/a b", "/a%2fb", "/é", "//host/x", "a:b", "/{id}", "/a;b=c,d", "/\x00"} {
		f.Add(path, "")
		f.Add("/a/b", path)
	}
	f.Fuzz(func(t *testing.T, path, raw string) {
		u := &url.URL{Path: path, RawPath: raw}
		if got, want := escapedPath(u), u.EscapedPath(); got != want {
			t.Errorf("%q %q: %q, and net/url says %q", path, raw, got, want)
		}
	})
}
