package nginxlimits

import (
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// placeKind is a kind of location. The kinds are in the order in which nginx prefers them.
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
	at      *conf.Directive
}

// server is a server block.
type server struct {
	named     bool     // the server has a server_name, which may be "_"
	names     []string // exact names
	wild      []string // wildcard names, as rules write them
	unknown   []string // names that rules cannot express
	isDefault bool
	places    []place // in the order in which nginx tries them
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
	if err := r.locations(d.Block, s, inherited, ""); err != nil {
		return err
	}
	s.places = append(s.places, place{kind: serverPlace, text: "paths in no location", prefix: everyPath, paths: pathSet{patterns: []string{everyPath}}, scope: inherited, at: d})
	s.sort()
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

// rest returns the index of the place for all paths outside of other places.
func (s *server) rest() int {
	return slices.IndexFunc(s.places, func(p place) bool { return !p.unknown && slices.Contains(p.paths.patterns, everyPath) })
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

// sort sorts the places in the order in which nginx tries them. If a prefix extends another one with "^~", the longer
// prefix comes first.
func (s *server) sort() {
	for i := range s.places {
		p := &s.places[i]
		below := func(o place) bool { return o.kind == firmPlace && strings.HasPrefix(p.prefix, o.prefix) }
		if p.kind == prefixPlace && slices.ContainsFunc(s.places, below) {
			p.kind = firmPlace
		}
	}
	slices.SortStableFunc(s.places, func(a, b place) int {
		switch {
		case a.kind != b.kind:
			return int(a.kind) - int(b.kind)
		case a.kind == regexPlace:
			return 0
		}
		return len(b.prefix) - len(a.prefix)
	})
}

// locations reads the locations in a block.
func (r *reader) locations(block []*conf.Directive, s *server, inherited scope, outer string) error {
	for _, d := range block {
		if d.Name != "location" || d.Block == nil {
			continue
		}
		p, ok := placeOf(d)
		if !ok {
			return d.Errorf("location must have a path, or one of =, ^~, ~ and ~* and a path")
		}
		isNamed := strings.HasPrefix(p.prefix, "@")
		if (isNamed || names(d.Block, "internal")) && (names(d.Block, "limit_req") || names(d.Block, "limit_conn")) {
			r.note(d, "the limits of location %s, which gets requests for other paths from nginx itself", p.text)
			var own scope
			if err := own.apply(r, d.Block); err != nil {
				return err
			}
			r.markUsed(&own)
		}
		if isNamed {
			continue
		}
		p.scope = inherited
		if err := p.scope.apply(r, d.Block); err != nil {
			return err
		}
		if err := r.locations(d.Block, s, p.scope, p.prefix); err != nil {
			return err
		}
		if p.kind == regexPlace && outer != "" && outer != everyPath && !p.within(outer) {
			p.unknown = true
		}
		if answersItself(d.Block) {
			p.scope = scope{}
		}
		s.places = append(s.places, p)
	}
	return nil
}

// answersItself reports whether nginx answers requests for a location before counting them: by "return", or with
// 404 because the location is internal.
func answersItself(block []*conf.Directive) bool {
	return slices.ContainsFunc(block, func(d *conf.Directive) bool { return d.Name == "return" || d.Name == "internal" })
}

// unclear reports whether patterns cannot express the paths of a place. The parameter counts reports whether the
// limit is in force in the place. If not, the rule must exclude the paths.
func (p *place) unclear(counts bool) bool { return p.unknown || !counts && p.paths.wide }

// within reports whether all patterns of a place start with a prefix.
func (p *place) within(prefix string) bool {
	return !slices.ContainsFunc(p.paths.patterns, func(pattern string) bool { return !strings.HasPrefix(pattern, strings.TrimSuffix(prefix, "/")) })
}

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
