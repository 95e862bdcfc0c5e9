package nginxlimits

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// The targets of random locations give the result of the location that nginx uses, or a note names the exception.
func TestOrderRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		m := &maker{rand.New(rand.NewPCG(seed, 1))}
		config := "limit_req_zone k zone=a:1m;\nlimit_req_zone k zone=b:1m;\nserver {\n" + m.tree("/", 3) + "}\n"
		var files conf.Files
		if err := files.AddText("a.conf", config); err != nil {
			t.Fatal(err)
		}
		r := &reader{variables: newVariables()}
		if err := r.read(files.Directives); err != nil {
			t.Fatal(err)
		}
		s := r.servers[0]
		for _, g := range r.groups() {
			for range 30 {
				path := "/" + m.segments() + "z"
				location, _ := used(&s.places[len(s.places)-1], path)
				want := slices.ContainsFunc(location.scope.reqs, func(u use) bool { return u.zone == g.zone.name })
				targets := pathsOf(g, s)
				i := slices.IndexFunc(targets, func(o target) bool { return covers(o.path, path) })
				if got := i >= 0 && targets[i].in; got != want && unknownPlaces(g, s, want) == "" {
					t.Fatalf("seed %d, zone %s, path %s: %v, nginx uses %q\n%v\nof\n%s", seed, g.zone.name, path, got, location.text, targets, config)
				}
			}
		}
	}
}

// used returns the location that nginx uses for a path, as ngx_http_core_find_location does. The result done reports
// whether nginx looks no further in outer blocks.
func used(p *place, path string) (found *place, done bool) {
	var longest *place
	for i := range p.inner {
		switch c := &p.inner[i]; {
		case p.kind == regexPlace || c.kind == regexPlace:
		case c.kind == exactPlace && c.prefix == path:
			return c, true
		case c.kind != exactPlace && strings.HasPrefix(path, c.prefix) && (longest == nil || len(c.prefix) > len(longest.prefix)):
			longest = c
		}
	}
	found = p
	if longest != nil {
		if found, done = used(longest, path); done || longest.kind == firmPlace {
			return found, done
		}
	}
	for i := range p.inner {
		if c := &p.inner[i]; c.kind == regexPlace && regexp.MustCompile(c.at.Args[1]).MatchString(path) {
			found, _ = used(c, path)
			return found, true
		}
	}
	return found, false
}

// segments returns some segments of a path, each with a slash.
func (m *maker) segments() (all string) {
	for range m.IntN(4) {
		all += m.pick("a/", "b/", "c/")
	}
	return all
}

// tree returns locations, each with a limit, in the block of a prefix.
func (m *maker) tree(prefix string, depth int) string {
	var b strings.Builder
	for range 1 + m.IntN(4) {
		inner := prefix + m.segments()
		kind := m.pick("= ", "^~ ", "", "~ ")
		text := inner
		switch kind {
		case "= ":
			text += "z"
		case "~ ":
			text = "^/" + strings.ReplaceAll(m.segments(), m.pick("a", "b"), m.pick("[^/]+", "(a|b)", "(b|c)")) + m.pick("a/", "z$", "[^/]+$")
			text = m.pick(text, text, text, "b/z$")
			inner = prefix
		}
		b.WriteString("location " + kind + text + " {\nlimit_req zone=" + m.pick("a", "b") + ";\n")
		if depth > 0 && kind != "= " && m.IntN(2) == 0 {
			b.WriteString(m.tree(inner, depth-1))
		}
		b.WriteString("}\n")
	}
	return b.String()
}
