package paths

import (
	"math/rand/v2"
	"net/url"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// readingsOf returns the readings as text, segments joined by "|".
func readingsOf(path string, ignoreCase bool) []string {
	var all []string
	for _, v := range Readings(path, ignoreCase, new(Buffer)) {
		switch {
		case v.Every:
			all = append(all, "every")
		case v.Never:
			all = append(all, "never")
		default:
			all = append(all, strings.Join(v.Segs, "|"))
		}
	}
	return all
}

func TestReadings(t *testing.T) {
	t.Parallel()
	for _, row := range testkit.SectionOf(t, "testdata/readings.txt", "readings").Rows(t) {
		got, want := readingsOf(row.In, false), strings.Split(strings.ReplaceAll(row.Want, "(none)", ""), ", ")
		if got[0] != want[0] {
			t.Errorf("%s: the first reading is %q, want %q", row.In, got[0], want[0])
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", row.In, got, want)
		}
	}
	if got := readingsOf("/A/%C3%89;X", true); !slices.Equal(got, []string{"a|é;x", "a|é"}) {
		t.Errorf("without case: %q", got)
	}
}

// servers has the ways in which real servers read a path, written with the standard library only. Each function returns
// the path for which the server would search its routes.
var servers = map[string]func(raw string) string{
	"unescape, clean": func(raw string) string {
		return path.Clean(unescaped(raw))
	},
	"unescape twice, clean": func(raw string) string {
		return path.Clean(unescaped(unescaped(raw)))
	},
	"clean, unescape": func(raw string) string {
		return unescaped(path.Clean(strings.NewReplacer("%2e", ".", "%2E", ".").Replace(raw)))
	},
	"RFC 3986, unescape": func(raw string) string {
		u, err := url.Parse("http://h")
		ref, err2 := url.Parse("http://h" + raw)
		if err != nil || err2 != nil {
			return ""
		}
		return strings.ReplaceAll(u.ResolveReference(ref).Path, "//", "/")
	},
	"RFC 3986, unescape, clean": func(raw string) string {
		ref, err := url.Parse("http://h" + raw)
		if err != nil {
			return ""
		}
		return path.Clean(new(url.URL).ResolveReference(ref).Path)
	},
	"backslashes": func(raw string) string {
		return path.Clean(strings.ReplaceAll(unescaped(raw), `\`, "/"))
	},
	"parameters cut first": func(raw string) string {
		segs := strings.Split(raw, "/")
		for i := range segs {
			segs[i], _, _ = strings.Cut(segs[i], ";")
		}
		return path.Clean(unescaped(strings.Join(segs, "/")))
	},
	"parameters cut last": func(raw string) string {
		segs := strings.Split(unescaped(raw), "/")
		for i := range segs {
			segs[i], _, _ = strings.Cut(segs[i], ";")
		}
		return path.Clean(strings.Join(segs, "/"))
	},
	"backslashes, parameters": func(raw string) string {
		segs := strings.FieldsFunc(unescaped(raw), func(r rune) bool { return r == '/' || r == '\\' })
		for i := range segs {
			segs[i], _, _ = strings.Cut(segs[i], ";")
		}
		return path.Clean("/" + strings.Join(segs, "/"))
	},
	"ends at NUL": func(raw string) string {
		s, _, _ := strings.Cut(unescaped(raw), "\x00")
		return path.Clean(s)
	},
	"host behind slashes": func(raw string) string {
		if rest := strings.TrimLeft(raw, `/\`); len(raw)-len(rest) > 1 {
			i := strings.IndexAny(rest, `/\`)
			if i < 0 {
				return "/"
			}
			raw = rest[i:]
		}
		return path.Clean(unescaped(raw))
	},
	"passed on unescaped": func(raw string) string {
		s := unescaped(raw)
		if i := strings.IndexAny(s, "?#"); i >= 0 {
			s = s[:i]
		}
		return path.Clean(s)
	},
	"as it is": unescaped,
}

func unescaped(s string) string {
	u, err := url.PathUnescape(s)
	if err != nil {
		return s
	}
	return u
}

// hostilePath returns a random path of pieces with which paths are disguised.
func hostilePath(r *rand.Rand) string {
	pieces := []string{"/", "/", "/", "auth", "auth", "login", "login", "..", ".", "%2e", "%2f", "%2F", ";x", "%3b", `\`, "%5c", "%00", "%23", "#", "%252f", "%25", "x", "l%6fgin"}
	s := "/"
	for range 1 + r.IntN(10) {
		s += pieces[r.IntN(len(pieces))]
	}
	return s
}

// disguised returns /auth/login with a few hostile pieces in it, which servers often read as /auth/login.
func disguised(r *rand.Rand) string {
	between := []string{"/", "/", "//", "//h/", `/\h/`, "/./", "/x/../", "%2f", "%252f", `\`, "%5c", ";x/", "/.;/", "/x/..;/", "/x%2f../", "/x//../../", "%3bx/", "/%2e/", "/x%2fy/../"}
	end := []string{"", "", "/", ";x", "%3bx", "%00", "%23", "%3f", "/.", "/x/..", ";x%2fy", `;x\y`, "%2f", "#x", "%2f.%2f"}
	return between[r.IntN(len(between))] + "auth" + between[r.IntN(len(between))] + "login" + end[r.IntN(len(end))]
}

func TestAsServersReadIt(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(3, 4))
	seen := make(map[string]int)
	for i := range 30_000 {
		raw := disguised(r)
		if i%2 == 0 {
			raw = hostilePath(r)
		}
		if raw[0] != '/' {
			raw = "/" + raw
		}
		var all []string
		for name, read := range servers {
			if strings.TrimSuffix(read(raw), "/") != "/auth/login" {
				continue
			}
			seen[name]++
			if all == nil {
				all = readingsOf(raw, false)
			}
			if !slices.Contains(all, "auth|login") && !slices.Contains(all, "every") {
				t.Fatalf("%s is /auth/login to a server that does %q; read here as %q", raw, name, all)
			}
		}
	}
	for name := range servers {
		if seen[name] < 50 {
			t.Errorf("%q: seen %d times", name, seen[name])
		}
	}
}

// FuzzReadings checks that the readings of any path include those of the servers, and that a reused buffer has the same
// readings as a new one.
func FuzzReadings(f *testing.F) {
	for _, p := range []string{"/auth/login", "/a//../b", "/x/..;/auth%2flogin", `/%5c\%25%32f;#%00?`, "/%C3%89/%ff", "http://x", "*", "/%", "/%2"} {
		f.Add(p, true)
	}
	used := new(Buffer)
	f.Fuzz(func(t *testing.T, p string, ignoreCase bool) {
		all := readingsOf(p, ignoreCase)
		var again []string
		for _, v := range Readings(p, ignoreCase, used) {
			if v.Every || v.Never {
				return
			}
			if slices.Contains(v.Segs, "") {
				t.Fatalf("%q has an empty segment: %q", p, v.Segs)
			}
			again = append(again, strings.Join(v.Segs, "|"))
		}
		if !slices.Equal(all, again) {
			t.Fatalf("%q: %q, then %q", p, all, again)
		}
		if !strings.HasPrefix(p, "/") || ignoreCase {
			return
		}
		for name, read := range servers {
			seen := read(p)
			if seen == "" {
				continue // the server rejects the request
			}
			want := strings.FieldsFunc(seen, func(r rune) bool { return r == '/' })
			if !slices.Contains(all, strings.Join(want, "|")) && !hasWildPiece(want) {
				t.Errorf("%q: %q reads %q, which is not one of %q", p, name, want, all)
			}
		}
	})
}

// hasWildPiece reports whether a server's reading has segments that no route has, with remains of escapes, parameters
// and dots.
func hasWildPiece(segs []string) bool {
	return slices.ContainsFunc(segs, func(s string) bool {
		return strings.ContainsAny(s, "%;\\?#\x00") || s == "." || s == ".."
	})
}

// Hardly any real requests have a path with more than one reading, so rules may deny those that do.
func TestHonestPaths(t *testing.T) {
	t.Parallel()
	log, doubtful := testkit.AccessLog(t), 0
	for _, r := range log {
		p, _, _ := strings.Cut(r.Target, "?")
		if got := readingsOf(p, false); len(got) > 1 {
			doubtful++
			t.Logf("%.80s: %.80q", p, got)
		}
	}
	if len(log) != 10_000 || doubtful > 5 {
		t.Errorf("%d of %d paths have more than one reading", doubtful, len(log))
	}
}
