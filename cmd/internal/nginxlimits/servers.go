package nginxlimits

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// placeKind is a kind of location.
type placeKind uint8

const (
	exactPlace  placeKind = iota // =
	firmPlace                    // ^~
	regexPlace                   // ~ and ~*
	prefixPlace                  // no modifier
	serverPlace                  // paths in no location
)

// place is a location, or the paths of a server outside of its locations.
type place struct {
	kind    placeKind
	text    string // as written in the configuration
	prefix  string // the prefix or path, if it is not a regular expression
	paths   pathSet
	unknown bool // patterns cannot express its paths
	scope   scope
	inner   []place // the locations in its block
	at      *conf.Directive
}

// server is a server block.
type server struct {
	named     bool     // the server has a server_name, which may be "_"
	names     []string // exact names
	wild      []string // wildcard names, as rules write them
	unknown   []string // names that rules cannot express
	isDefault bool
	places    []place // see place.inOrder
	at        *conf.Directive
}

// server reads a server. It skips a server that answers all requests itself.
func (r *reader) server(d *conf.Directive, inherited scope) error {
	s := &server{at: d}
	if err := inherited.apply(r, d.Block); err != nil {
		return err
	}
	for _, c := range d.Block {
		switch c.Name {
		case "return":
			return nil // nginx answers before counting
		case "server_name":
			s.name(c)
		case "listen":
			s.isDefault = s.isDefault || slices.Contains(c.Args, "default_server") || slices.Contains(c.Args, "default")
		}
	}
	inner, err := r.locations(d.Block, inherited)
	if err != nil {
		return err
	}
	whole := place{kind: serverPlace, text: "paths in no location", prefix: everyPath, paths: pathSet{patterns: []string{everyPath}}, scope: inherited, inner: inner, at: d}
	s.places = whole.inOrder(nil)
	r.addServer(s)
	return nil
}

// addServer adds a server. If several servers have the same name, for example on ports 80 and 443, it keeps only
// the first one with limits, because rules do not depend on ports.
func (r *reader) addServer(s *server) {
	i := slices.IndexFunc(r.servers, s.sharesName)
	if i < 0 {
		r.servers = append(r.servers, s)
		return
	}
	o := r.servers[i]
	s.isDefault = s.isDefault || o.isDefault
	switch {
	case !s.limits():
		o.isDefault = s.isDefault
	case !o.limits():
		r.servers[i] = s
	case !s.limitsLike(o):
		for i := range s.places {
			r.markUsed(&s.places[i].scope)
		}
		r.note(s.at, "the limits of this server: the server at %s has the same name, and rules do not depend on ports", o.at.Where())
	}
}

// markUsed marks the zones of omitted limits as used, so that they are not reported as unused.
func (r *reader) markUsed(s *scope) {
	for _, u := range s.uses() {
		if z := r.zone(u.at.Name+"_zone", u.zone); z != nil {
			z.used = true
		}
	}
}

// limitsLike reports whether two servers have the same locations with the same limits.
func (s *server) limitsLike(o *server) bool {
	return slices.EqualFunc(s.places, o.places, func(p, q place) bool {
		return p.text == q.text && slices.EqualFunc(p.scope.uses(), q.scope.uses(), func(u, v use) bool { return u.likes(&v) })
	})
}

// name adds the names of a server.
func (s *server) name(d *conf.Directive) {
	for _, n := range d.Args {
		name := strings.ToLower(n)
		s.named = s.named || name != ""
		switch {
		case name == "_" || name == "":
		case strings.HasPrefix(name, "~"), strings.HasSuffix(name, "*"), strings.Contains(name, "$"):
			s.unknown = append(s.unknown, n)
		case strings.HasPrefix(name, "."):
			s.names, s.wild = append(s.names, name[1:]), append(s.wild, "*"+name)
		case strings.HasPrefix(name, "*."):
			s.wild = append(s.wild, name)
		default:
			s.names = append(s.names, name)
		}
	}
}

// limits reports whether any limit is in force in the server.
func (s *server) limits() bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return len(p.scope.reqs)+len(p.scope.conns) > 0 })
}

// sharesName reports whether two servers have a name in common, or both have none.
func (s *server) sharesName(o *server) bool {
	return s.isNameless() && o.isNameless() || overlap(s.names, o.names) || overlap(s.wild, o.wild)
}

func (s *server) isNameless() bool { return len(s.names)+len(s.wild)+len(s.unknown) == 0 }

func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(s string) bool { return slices.Contains(b, s) })
}

// hosts returns the names of the server as hosts of a rule.
func (s *server) hosts() []string { return slices.Concat(s.names, s.wild) }

// inOrder returns a place and its inner places, in an order in which the first match for a path is the location that
// nginx uses. The parameter outer has the regular expressions of outer blocks that nginx tries after the inner ones.
//
// In each block, nginx looks for an exact path, or else for the longest prefix, and continues in the block of that
// prefix. If it finds no exact path, it tries the regular expressions, from the innermost block outwards, but not those
// of a block in which the longest prefix has "^~". So no order of the locations is right for all configurations.
// Therefore, the regular expressions that apply to a prefix come directly before it, restricted to its paths.
func (p *place) inOrder(outer []place) (all []place) {
	var prefixes, regexes []place
	for _, c := range p.inner {
		switch {
		case c.kind == regexPlace:
			regexes = append(regexes, c.inOrder(nil)...)
		case c.kind == exactPlace && p.kind != regexPlace:
			all = append(all, c)
		case p.kind != regexPlace: // nginx never uses prefixes in a regular expression
			prefixes = append(prefixes, c)
		}
	}
	regexes = append(regexes, outer...)
	slices.SortStableFunc(prefixes, func(a, b place) int { return len(b.prefix) - len(a.prefix) })
	for _, c := range prefixes {
		if c.kind == firmPlace {
			all = append(all, c.inOrder(outer)...)
		} else {
			all = append(all, c.inOrder(regexes)...)
		}
	}
	for _, c := range regexes {
		if c = c.within(p); c.unknown || len(c.paths.patterns) > 0 {
			all = append(all, c)
		}
	}
	return append(all, *p)
}

// within returns a regular expression, restricted to the paths of a place.
func (p *place) within(o *place) place {
	both := *p
	both.unknown = p.unknown || o.unknown
	both.paths = pathSet{rough: p.paths.rough, wide: p.paths.wide || o.paths.wide}
	for _, a := range p.paths.patterns {
		for _, b := range o.paths.patterns {
			switch {
			case o.prefix != "" && strings.HasPrefix(a, escapePath(o.prefix)):
				both.paths.patterns = append(both.paths.patterns, a)
			case meet(a, b):
				both.paths.patterns = append(both.paths.patterns, common(a, b))
				both.paths.rough = cmp.Or(both.paths.rough, o.paths.rough)
			}
		}
	}
	return both
}

// locations reads the locations in a block.
func (r *reader) locations(block []*conf.Directive, inherited scope) (all []place, err error) {
	for _, d := range block {
		if d.Name != "location" || d.Block == nil {
			continue
		}
		p, ok := placeOf(d)
		if !ok {
			return nil, d.Errorf("location must have a path, which may follow one of =, ^~, ~ or ~*")
		}
		isNamed := strings.HasPrefix(p.prefix, "@")
		if (isNamed || names(d.Block, "internal")) && (names(d.Block, "limit_req") || names(d.Block, "limit_conn")) {
			r.note(d, "the limits of location %s: nginx only redirects requests for other paths to it", p.text)
			var own scope
			if err := own.apply(r, d.Block); err != nil {
				return nil, err
			}
			r.markUsed(&own)
		}
		if isNamed {
			continue
		}
		p.scope = inherited
		if err := p.scope.apply(r, d.Block); err != nil {
			return nil, err
		}
		if p.inner, err = r.locations(d.Block, p.scope); err != nil {
			return nil, err
		}
		if answersItself(d.Block) {
			p.scope = scope{}
		}
		all = append(all, p)
	}
	return all, nil
}

// answersItself reports whether nginx answers requests for a location before counting them: by "return", or with
// 404 because the location is internal.
func answersItself(block []*conf.Directive) bool {
	return slices.ContainsFunc(block, func(d *conf.Directive) bool { return d.Name == "return" || d.Name == "internal" })
}

// unclear reports whether patterns cannot express the paths of a place. The parameter counts is true if the limit is
// in force in the place. If it is not, the rule must exclude the paths, which it cannot do if the patterns also match
// other paths.
func (p *place) unclear(counts bool) bool { return p.unknown || !counts && p.paths.wide }

func placeOf(d *conf.Directive) (p place, ok bool) {
	args := d.Args
	if len(args) == 1 { // the modifier need not be followed by a space
		for _, sign := range []string{"=", "^~", "~*", "~"} {
			if rest, found := strings.CutPrefix(args[0], sign); found {
				args = []string{sign, rest}
				break
			}
		}
	}
	p = place{text: strings.Join(d.Args, " "), at: d}
	switch {
	case len(args) == 1:
		p.kind, p.prefix = prefixPlace, args[0]
	case len(args) != 2:
		return p, false
	case args[0] == "=":
		p.kind, p.prefix, p.paths = exactPlace, args[1], exactPaths(args[1])
		return p, true
	case args[0] == "^~":
		p.kind, p.prefix = firmPlace, args[1]
	case args[0] == "~" || args[0] == "~*":
		p.kind = regexPlace
		var known bool
		p.paths, known = regexPaths(args[1], args[0] == "~*")
		p.unknown = !known
		return p, true
	default:
		return p, false
	}
	if p.paths = prefixPaths(p.prefix); !strings.HasPrefix(p.prefix, "/") {
		p.unknown = true
	}
	return p, true
}
