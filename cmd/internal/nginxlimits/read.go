package nginxlimits

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// zoneDefinition is a limit_req_zone or a limit_conn_zone.
type zoneDefinition struct {
	name, key string
	rate      string // as in a limit of a policy, of a limit_req_zone
	at        *conf.Directive
	used      bool
}

// use is a limit_req or a limit_conn: a zone, and how it limits.
type use struct {
	conn     bool
	zone     string
	burst    int64
	nodelay  bool
	delay    int64 // how many requests beyond the first pass without a delay
	requests int64 // at the same time, of a limit_conn
	dryRun   bool
	status   int
	at       *conf.Directive
}

// likes reports whether two uses limit alike.
func (u *use) likes(o *use) bool {
	a, b := *u, *o
	a.at, b.at, a.status, b.status = nil, nil, 0, 0
	return a == b
}

// scope is what is in force in a block. Blocks inherit it, and replace what they say themselves.
type scope struct {
	reqs, conns           []use
	reqStatus, connStatus int
	reqDry, connDry       bool
}

// uses returns the limits in force.
func (s *scope) uses() (all []use) {
	for _, u := range s.reqs {
		u.dryRun, u.status = s.reqDry, s.reqStatus
		all = append(all, u)
	}
	for _, u := range s.conns {
		u.dryRun, u.status = s.connDry, s.connStatus
		all = append(all, u)
	}
	return all
}

// placeKind is a kind of location, in the order in which nginx prefers them.
type placeKind uint8

const (
	exactPlace  placeKind = iota // =
	firmPlace                    // ^~
	regexPlace                   // ~ and ~*
	prefixPlace                  // without a sign
	serverPlace                  // paths in no location
)

// place is a location, or what of a server is in none.
type place struct {
	kind    placeKind
	text    string // as the configuration writes it
	prefix  string // of a location that is no regular expression
	paths   pathSet
	unknown bool // no pattern says which paths it has
	scope   scope
	at      *conf.Directive
}

// server is a server.
type server struct {
	named     bool     // it has a name, be it "_"
	names     []string // exact names
	wild      []string // as hosts of rules write them
	unknown   []string // names that hosts cannot say
	isDefault bool
	places    []place // in the order in which nginx looks at them
	at        *conf.Directive
}

// reader reads what limits from a configuration.
type reader struct {
	variables
	reqZones, connZones map[string]*zoneDefinition
	zoneOrder           []*zoneDefinition
	servers             []*server
	trusted             []string
	notes               []string // what is not translated
}

func newReader() *reader {
	return &reader{variables: newVariables(), reqZones: map[string]*zoneDefinition{}, connZones: map[string]*zoneDefinition{}}
}

// note notes what is not translated, and where it is.
func (r *reader) note(d *conf.Directive, format string, args ...any) {
	note := fmt.Sprintf("%s: %s", d.Where(), fmt.Sprintf(format, args...))
	if !slices.Contains(r.notes, note) {
		r.notes = append(r.notes, note)
	}
}

// read reads a configuration: a whole one, or what stands in its http block or in a server.
func (r *reader) read(all []*conf.Directive) error {
	top := scope{reqStatus: defaultStatus, connStatus: defaultStatus}
	var https []*conf.Directive
	var rest []*conf.Directive
	for _, d := range all {
		switch d.Name {
		case "http":
			https = append(https, d)
		case "stream", "mail":
			if names(d.Block, "limit_conn") {
				r.note(d, "the limits of %s are for connections that are not HTTP", d.Name)
			}
		default:
			rest = append(rest, d)
		}
	}
	for _, h := range https {
		rest = append(rest, h.Block...)
	}
	r.define(rest)
	if err := r.zones(rest); err != nil {
		return err
	}
	if err := top.apply(r, rest); err != nil {
		return err
	}
	blocks := rest
	if i := slices.IndexFunc(rest, func(d *conf.Directive) bool { return d.Name == "location" }); i >= 0 { // what stands in a server
		blocks = []*conf.Directive{{Name: "server", Block: rest, File: rest[i].File, Line: rest[i].Line}}
	}
	for _, d := range blocks {
		if d.Name == "server" && d.Block != nil {
			if err := r.server(d, top); err != nil {
				return err
			}
		}
	}
	if len(r.servers) == 0 { // a part of a configuration, without its servers
		r.servers = []*server{{isDefault: true, places: []place{{kind: serverPlace, text: "/", paths: pathSet{patterns: []string{everyPath}}, scope: top}}}}
	}
	if !slices.ContainsFunc(r.servers, func(s *server) bool { return s.isDefault }) {
		r.servers[0].isDefault = true
	}
	return nil
}

// names reports whether a block has a directive of that name, or a block in it.
func names(all []*conf.Directive, name string) bool {
	return slices.ContainsFunc(all, func(d *conf.Directive) bool { return d.Name == name || names(d.Block, name) })
}

// define notes all variables, in blocks too.
func (r *reader) define(all []*conf.Directive) {
	for _, d := range all {
		if r.add(d); d.Name != "map" && d.Name != "geo" {
			r.define(d.Block)
		}
	}
}

// zones reads the definitions of zones.
func (r *reader) zones(all []*conf.Directive) error {
	for _, d := range all {
		isReq := d.Name == "limit_req_zone"
		if !isReq && d.Name != "limit_conn_zone" {
			if err := noZones(d.Block); err != nil {
				return err
			}
			continue
		}
		z, err := zoneOfDirective(d)
		if err != nil {
			return err
		}
		of := r.connZones
		if isReq {
			of = r.reqZones
		}
		if of[z.name] != nil {
			return d.Errorf("the zone %q is defined at %s already", z.name, of[z.name].at.Where())
		}
		of[z.name] = z
		r.zoneOrder = append(r.zoneOrder, z)
	}
	return nil
}

// noZones returns an error for a zone that is defined in a block, where nginx refuses it.
func noZones(all []*conf.Directive) error {
	for _, d := range all {
		if d.Name == "limit_req_zone" || d.Name == "limit_conn_zone" {
			return d.Errorf("%s stands in the http block, and not in one within it", d.Name)
		}
		if err := noZones(d.Block); err != nil {
			return err
		}
	}
	return nil
}

func zoneOfDirective(d *conf.Directive) (*zoneDefinition, error) {
	z := &zoneDefinition{at: d}
	for i, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		switch {
		case i == 0:
			z.key = arg
		case name == "zone":
			z.name, _, _ = strings.Cut(value, ":")
		case name == "rate":
			rate, err := rateOfText(value)
			if err != nil {
				return nil, d.Errorf("%w", err)
			}
			z.rate = rate
		case name == "sync": // of a cluster, whose instances count together here anyway
		default:
			return nil, d.Errorf("unknown parameter %q of %s", arg, d.Name)
		}
	}
	switch {
	case z.name == "":
		return nil, d.Errorf("%s has no zone", d.Name)
	case z.rate == "" && d.Name == "limit_req_zone":
		z.rate = "1/second"
	}
	return z, nil
}

// maxRate is the largest number that is read, above what any limit needs.
const maxRate = 1 << 31

// rateOfText returns a rate as limits of a policy are written.
func rateOfText(text string) (string, error) {
	number, unit := strings.TrimSuffix(text, "r/s"), "second"
	if number == text {
		number, unit = strings.TrimSuffix(text, "r/m"), "minute"
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if number == text || err != nil || n < 1 || n > maxRate {
		return "", fmt.Errorf("the rate %q is not as in 10r/s or 30r/m", text)
	}
	return fmt.Sprintf("%d/%s", n, unit), nil
}

// defaultStatus is the status with which nginx refuses.
const defaultStatus = 503

// apply reads the limits of a block over those that it inherits.
func (s *scope) apply(r *reader, block []*conf.Directive) error {
	var reqs, conns []use
	for _, d := range block {
		var err error
		switch d.Name {
		case "limit_req":
			err = appendUse(&reqs, d, useOfReq)
		case "limit_conn":
			err = appendUse(&conns, d, useOfConn)
		case "limit_req_status":
			s.reqStatus, err = statusOf(d)
		case "limit_conn_status":
			s.connStatus, err = statusOf(d)
		case "limit_req_dry_run":
			s.reqDry, err = isOn(d)
		case "limit_conn_dry_run":
			s.connDry, err = isOn(d)
		case "limit_zone":
			r.note(d, "limit_zone is of nginx before 1.1.8: write limit_conn_zone")
		case "set_real_ip_from", "real_ip_header":
			r.realIP(d)
		}
		if err != nil {
			return err
		}
	}
	if reqs != nil {
		s.reqs = reqs
	}
	if conns != nil {
		s.conns = conns
	}
	return nil
}

func appendUse(all *[]use, d *conf.Directive, read func(*conf.Directive) (use, error)) error {
	u, err := read(d)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(*all, func(o use) bool { return o.zone == u.zone }) {
		return d.Errorf("the zone %q is used twice in one block", u.zone)
	}
	*all = append(*all, u)
	return nil
}

func useOfReq(d *conf.Directive) (use, error) {
	u := use{at: d}
	for _, arg := range d.Args {
		name, value, _ := strings.Cut(arg, "=")
		var err error
		switch {
		case name == "zone":
			u.zone = value
		case name == "burst":
			u.burst, err = number(value)
		case name == "delay":
			u.delay, err = number(value)
		case arg == "nodelay":
			u.nodelay = true
		default:
			return u, d.Errorf("unknown parameter %q of limit_req", arg)
		}
		if err != nil {
			return u, d.Errorf("%s: %w", name, err)
		}
	}
	if u.zone == "" {
		return u, d.Errorf("limit_req has no zone")
	}
	if u.burst == 0 || u.delay >= u.burst {
		u.nodelay = true // no request is ever delayed
	}
	if u.nodelay {
		u.delay = 0
	}
	return u, nil
}

func useOfConn(d *conf.Directive) (use, error) {
	u := use{at: d, conn: true}
	if len(d.Args) != 2 {
		return u, d.Errorf("limit_conn has a zone and a number")
	}
	n, err := number(d.Args[1])
	if err != nil || n < 1 || n > 65535 {
		return u, d.Errorf("limit_conn: %q is not a number from 1 to 65535", d.Args[1])
	}
	u.zone, u.requests = d.Args[0], n
	return u, nil
}

func number(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > maxRate {
		return 0, fmt.Errorf("%q is not a number above 0", text)
	}
	return n, nil
}

func statusOf(d *conf.Directive) (int, error) {
	if len(d.Args) == 1 {
		if n, err := strconv.Atoi(d.Args[0]); err == nil && n >= 400 && n <= 599 {
			return n, nil
		}
	}
	return 0, d.Errorf("%s is a status from 400 to 599", d.Name)
}

func isOn(d *conf.Directive) (bool, error) {
	if len(d.Args) == 1 && (d.Args[0] == "on" || d.Args[0] == "off") {
		return d.Args[0] == "on", nil
	}
	return false, d.Errorf("%s is on or off", d.Name)
}

// realIP adds the proxies that nginx believes.
func (r *reader) realIP(d *conf.Directive) {
	if len(d.Args) != 1 {
		return
	}
	if d.Name == "real_ip_header" {
		if !strings.EqualFold(d.Args[0], "X-Forwarded-For") {
			r.note(d, "the address of the client is read from X-Forwarded-For: have your proxy set it in addition to %s", d.Args[0])
		}
		return
	}
	p, err := parseNetwork(d.Args[0])
	switch {
	case d.Args[0] == "unix:":
	case err != nil:
		r.note(d, "trusted_proxies are addresses and networks, and %s is neither", d.Args[0])
	case !slices.Contains(r.trusted, shortPrefix(p)):
		r.trusted = append(r.trusted, shortPrefix(p))
	}
}

// server reads a server, unless it answers everything by itself.
func (r *reader) server(d *conf.Directive, inherited scope) error {
	s := &server{at: d}
	if err := inherited.apply(r, d.Block); err != nil {
		return err
	}
	for _, c := range d.Block {
		switch c.Name {
		case "return":
			return nil // nginx answers before it counts
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

// addServer adds a server. Of several with one name, such as those of ports 80 and 443, it keeps the first with
// limits, since a rule knows no ports.
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
		r.note(s.at, "the limits of this server: that of %s has the same name, and a rule knows no ports", o.at.Where())
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

// rest returns the index of the place for paths that no longer prefix has.
func (s *server) rest() int {
	return slices.IndexFunc(s.places, func(p place) bool { return !p.unknown && slices.Contains(p.paths.patterns, everyPath) })
}

// limits reports whether a limit is in force anywhere in the server.
func (s *server) limits() bool {
	return slices.ContainsFunc(s.places, func(p place) bool { return len(p.scope.reqs)+len(p.scope.conns) > 0 })
}

// sharesName reports whether two servers have a name in common, or both have none.
func (s *server) sharesName(o *server) bool {
	mine, theirs := s.hosts(), o.hosts()
	if len(mine)+len(s.unknown) == 0 && len(theirs)+len(o.unknown) == 0 {
		return true
	}
	return slices.ContainsFunc(mine, func(h string) bool { return slices.Contains(theirs, h) })
}

// hosts returns the names as hosts of a rule.
func (s *server) hosts() []string { return slices.Concat(s.names, s.wild) }

// sort orders the places as nginx looks at them. A prefix below one with "^~" comes before that.
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

// locations reads the locations of a block.
func (r *reader) locations(block []*conf.Directive, s *server, inherited scope, outer string) error {
	for _, d := range block {
		if d.Name != "location" || d.Block == nil {
			continue
		}
		p, ok := placeOf(d)
		if !ok {
			return d.Errorf("location has a path, or one of =, ^~, ~ and ~* and a path")
		}
		if strings.HasPrefix(p.prefix, "@") {
			continue // requests come to it from others, which have counted them
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

// answersItself reports whether a location answers, or is not there for clients, before nginx counts.
func answersItself(block []*conf.Directive) bool {
	return slices.ContainsFunc(block, func(d *conf.Directive) bool { return d.Name == "return" || d.Name == "internal" })
}

// within reports whether all patterns of a place are below a prefix.
func (p *place) within(prefix string) bool {
	return !slices.ContainsFunc(p.paths.patterns, func(pattern string) bool { return !strings.HasPrefix(pattern, strings.TrimSuffix(prefix, "/")) })
}

func placeOf(d *conf.Directive) (p place, ok bool) {
	args := d.Args
	if len(args) == 1 { // the sign may be written without a space
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
