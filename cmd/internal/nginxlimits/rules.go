package nginxlimits

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/sluicehq/sluice"
	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
	"github.com/sluicehq/sluice/policy"
)

// group has all uses of a zone that set the same limit. They share a count, so they become one rule.
type group struct {
	use
	zone   *zoneDefinition
	places map[*server][]bool   // by server: whether the limit is in force in each of its places
	mixed  bool                 // places deny with different statuses
	paths  map[*server][]target // see pathsOf
}

// appliesAt reports whether the limit is in force in the place with the index i of a server.
func (g *group) appliesAt(s *server, i int) bool { return i < len(g.places[s]) && g.places[s][i] }

// has reports whether the limit is in force in any place of a server.
func (g *group) has(s *server) bool { return slices.Contains(g.places[s], true) }

// importedRule is a rule with its comments.
type importedRule struct {
	policy.Rule
	overrides []policy.Override
	notes     []string
	status    int
}

// groups returns all groups, in the order of their zones.
func (r *reader) groups() (all []*group) {
	for _, s := range r.servers {
		for i := range s.places {
			for _, u := range s.places[i].scope.uses() {
				g := r.groupOf(&all, u)
				if g == nil {
					continue
				}
				if g.places[s] == nil {
					g.places[s] = make([]bool, len(s.places))
				}
				g.places[s][i] = true
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int { return slices.Index(r.zones, a.zone) - slices.Index(r.zones, b.zone) })
	return all
}

// groupOf returns the group of a use, or nil for an undefined zone. It adds a missing group.
func (r *reader) groupOf(all *[]*group, u use) *group {
	kind := u.at.Name + "_zone"
	z := r.zone(kind, u.zone)
	if z == nil {
		r.note(u.at, "no %s defines the zone %q", kind, u.zone)
		return nil
	}
	z.used = true
	for _, g := range *all {
		if g.likes(&u) {
			g.mixed = g.mixed || g.status != u.status
			return g
		}
	}
	g := &group{use: u, zone: z, places: map[*server][]bool{}, paths: map[*server][]target{}}
	*all = append(*all, g)
	return g
}

// rules translates a group to one rule. If servers count separately, or if the key depends on the request, it
// returns several rules.
func (r *reader) rules(g *group, names map[string]bool) []importedRule {
	branches, err := r.valuesOfKey(g.zone.key)
	if err != nil {
		r.note(g.zone.at, "%s %s with the key %q: %v", g.zone.at.Name, g.zone.name, g.zone.key, err)
		return nil
	}
	var out []importedRule
	for _, b := range branches {
		if text, literal := b.literal(); literal && text == "" {
			continue // nginx does not count requests with an empty key
		}
		key, err := keyOfPieces(b.value)
		if err != nil {
			r.note(g.zone.at, "%s %s with the key %q: %v", g.zone.at.Name, g.zone.name, g.zone.key, err)
			continue
		}
		for _, servers := range r.together(g, &key) {
			one, ok := r.rule(g, &b, &key, servers, names)
			if ok {
				out = append(out, one)
			}
		}
	}
	return out
}

// together partitions the servers in which the limit is in force. For each set of servers, one rule counts the
// requests.
func (r *reader) together(g *group, key *zoneKey) (all [][]*server) {
	var in []*server
	separate := key.byServer
	for _, s := range r.servers {
		if g.has(s) && (!key.byServer || key.always || s.named) {
			in = append(in, s)
			separate = separate || !s.isDefault && len(s.wild)+len(s.unknown) > 0 && len(r.servers) > 1
		}
	}
	if len(in) == 0 {
		r.note(g.zone.at, "the zone %s: nginx does not count by $server_name in servers without server_name", g.zone.name)
		return nil
	}
	if len(in) < 2 || !separate || !key.byServer && r.alike(g) {
		return [][]*server{in}
	}
	for _, s := range in {
		all = append(all, []*server{s})
	}
	return all
}

// alike reports whether the limit is in force for the same paths in all servers.
func (r *reader) alike(g *group) bool {
	first := pathsOf(g, r.servers[0])
	return !slices.ContainsFunc(r.servers, func(s *server) bool {
		return !g.has(s) || !slices.Equal(pathsOf(g, s), first) || unknownPlaces(g, s, true)+unknownPlaces(g, s, false) != ""
	}) || len(r.servers) == 1
}

// target is a pattern of paths. In a list of targets, the first match decides.
type target struct {
	method, host, path string
	in                 bool // the limit is in force for these paths
}

func (t target) pattern() string {
	if t.method != "" {
		return t.method + " " + t.host + t.path
	}
	return t.host + t.path
}

// pathsOf returns the targets of a server. They have no hosts, and are simplified.
func pathsOf(g *group, s *server) []target {
	if known, found := g.paths[s]; found {
		return known
	}
	var all []target
	for i := range s.places {
		if s.places[i].unclear(g.appliesAt(s, i)) {
			continue
		}
		for _, p := range s.places[i].paths.patterns {
			all = append(all, target{path: p, in: g.appliesAt(s, i)})
		}
	}
	g.paths[s] = simplified(merged(simplified(all)))
	return g.paths[s]
}

// merged replaces a target with a later one that covers it, if moving that one up changes no result. The targets
// have no methods and no hosts. inOrder puts a copy of a regular expression before each prefix, restricted to the paths
// of the prefix. merged makes these copies one target again.
func merged(all []target) []target {
	for i := range all {
		for j := i + 1; j < len(all); j++ {
			if all[i].in == all[j].in && covers(all[j].path, all[i].path) && canMove(all, j, i) {
				all[i] = all[j]
				all = slices.Delete(all, j, j+1)
				j--
			}
		}
	}
	return all
}

// canMove reports whether the target with the index from can replace the earlier one with the index to, which it
// covers. It can if the targets between them with the other result do not decide about any of its paths.
func canMove(all []target, from, to int) bool {
	moved := all[from]
	for k := to + 1; k < from; k++ {
		t := all[k]
		coversCommon := func(o target) bool { return covers(o.path, common(t.path, moved.path)) }
		if t.in != moved.in && meet(t.path, moved.path) && !slices.ContainsFunc(all[:k], coversCommon) {
			return false
		}
	}
	return true
}

// simplified drops redundant targets. A target is "in" if the limit is in force there, and "out" otherwise. Two
// targets meet if some request matches both. simplified drops a target in three cases:
//
//   - An earlier target covers it.
//   - It is out, and meets no later target that is in.
//   - The first later target that it meets covers it, and both are in or both are out.
func simplified(all []target) []target {
	var in, reached, kept []target
	for _, t := range all {
		if t.in {
			in = append(in, t)
		}
	}
	for _, t := range all {
		if !t.in && !slices.ContainsFunc(in, func(o target) bool { return meetTarget(t, o) }) {
			continue // t is out, and meets no target that is in, like most locations
		}
		if !slices.ContainsFunc(reached, func(o target) bool { return coversTarget(o, t) }) {
			reached = append(reached, t)
		}
	}
	for _, t := range slices.Backward(reached) { // kept has the later targets, in reverse order
		isNeeded := t.in || slices.ContainsFunc(kept, func(o target) bool { return o.in && meetTarget(t, o) })
		if isNeeded && !redundant(t, kept) {
			kept = append(kept, t)
		}
	}
	slices.Reverse(kept)
	return kept
}

// redundant reports whether the first later target that t meets covers t, and both are in or both are out. backward
// has the later targets in reverse order.
func redundant(t target, backward []target) bool {
	for _, later := range slices.Backward(backward) {
		if meetTarget(t, later) {
			return t.in == later.in && coversTarget(later, t)
		}
	}
	return false
}

func meetTarget(a, b target) bool {
	return (a.host == b.host || a.host == "" || b.host == "") && (coversMethod(a.method, b.method) || coversMethod(b.method, a.method)) && meet(a.path, b.path)
}

// coversTarget reports whether q matches all requests that p matches.
func coversTarget(q, p target) bool {
	return (q.host == p.host || q.host == "") && coversMethod(q.method, p.method) && covers(q.path, p.path)
}

// coversMethod reports whether a pattern with the method q matches requests with the method p. GET also matches
// HEAD.
func coversMethod(q, p string) bool {
	return q == p || q == "" || q == http.MethodGet && p == http.MethodHead
}

// unknownPlaces names the locations of a server that patterns cannot express, if the rule treats their paths like those
// of a later place with a different result (see differsAfter). If inForce is true, these are locations in which the
// limit is in force, although it is not in force in the later place; if it is false, the reverse. unknownPlaces returns
// "" if the server has no such locations.
func unknownPlaces(g *group, s *server, inForce bool) string {
	var all []string
	for i := range s.places {
		p := &s.places[i]
		if g.appliesAt(s, i) != inForce || !p.unclear(inForce) || !g.differsAfter(s, i) {
			continue
		}
		if name := fmt.Sprintf("%s (%s)", p.text, p.at.Where()); !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

// differsAfter reports whether the limit is in force in place i and not in a place that gets the paths of place i, or
// the reverse. If patterns cannot express place i, its paths go to the regular expressions directly after it, or to the
// prefix after these.
func (g *group) differsAfter(s *server, i int) bool {
	in := g.appliesAt(s, i)
	for j := i + 1; j < len(s.places); j++ {
		if o := g.appliesAt(s, j); o != in && !s.places[j].unclear(o) {
			return true
		}
		if s.places[j].kind != regexPlace {
			break
		}
	}
	return false
}

// rule translates the limit of a group for some servers and one branch of the key.
func (r *reader) rule(g *group, b *branch, key *zoneKey, servers []*server, names map[string]bool) (one importedRule, ok bool) {
	one.Key, one.Missing, one.status = slices.Clone(key.parts), key.missing, g.status
	one.notes = append(one.notes, g.source(servers))
	one.notes = append(one.notes, key.notes...)
	one.notes = append(one.notes, b.notes...)
	if g.mixed {
		one.status = tooMany
		one.notes = append(one.notes, "in nginx, the status of denials depends on the location; here it is the same for all rules")
	}
	g.limit(&one)
	one.Clients, one.NotClients, one.Headers = b.clients, b.notClients, b.headers
	one.Hosts = b.hosts
	targets, ok := r.targets(g, servers, &one)
	if !ok {
		return one, false
	}
	if targets = narrowed(targets, b); !slices.ContainsFunc(targets, func(t target) bool { return t.in }) {
		for _, s := range servers {
			if unknown := unknownPlaces(g, s, true); unknown != "" {
				r.note(g.at, "%s of the zone %s: a policy has no pattern such as location %s", g.at.Name, g.zone.name, unknown)
			}
		}
		return one, false
	}
	roughness(g, servers, targets, &one)
	one.Name = freeName(g.zone.name, names)
	one.setTargets(targets)
	if wrong := one.problem(); wrong != "" {
		delete(names, one.Name)
		r.note(g.at, "%s of the zone %s: %s", g.at.Name, g.zone.name, wrong)
		return one, false
	}
	return one, true
}

// source returns a comment that names the directives and lines from which the rule was made.
func (g *group) source(servers []*server) string {
	var at []string
	for _, s := range servers {
		for i, in := range g.places[s] {
			if !in {
				continue
			}
			for _, u := range s.places[i].scope.uses() {
				if g.likes(&u) && !slices.Contains(at, u.at.Where()) {
					at = append(at, u.at.Where())
				}
			}
		}
	}
	slices.Sort(at)
	if len(at) > maxLines {
		at = append(at[:maxLines:maxLines], fmt.Sprintf("%d more", len(at)-maxLines))
	}
	return fmt.Sprintf("%s %s, %s", g.at.Name, strings.Join(g.at.Args, " "), strings.Join(at, ", "))
}

// limit sets the limit of a rule.
func (g *group) limit(one *importedRule) {
	one.Shadow = g.dryRun
	if g.conn {
		one.InFlight.Most = g.requests
		return
	}
	one.Limit = fmt.Sprintf("%s burst %d", g.zone.rate, g.burst+1)
	switch {
	case g.nodelay:
	case g.delay > 0:
		one.notes = append(one.notes, fmt.Sprintf("nginx delays requests beyond delay=%d; here they are allowed at once. With \"burst %d\" they are denied; with \"algorithm: leaky_bucket\", every request but the first waits", g.delay, g.delay+1))
	default:
		one.Algorithm = "leaky_bucket"
	}
}

// targets returns the targets of a rule for servers, and sets the hosts of the rule. Targets have hosts if the
// limit differs between servers.
func (r *reader) targets(g *group, servers []*server, one *importedRule) (all []target, ok bool) {
	switch {
	case len(servers) == len(r.servers) && r.alike(g):
		return pathsOf(g, servers[0]), true
	case len(servers) == 1 && !servers[0].isDefault:
		s := servers[0]
		if len(s.unknown) > 0 {
			r.note(s.at, "a rule cannot have hosts such as %s", strings.Join(s.unknown, ", "))
		}
		hosts := s.hosts()
		if len(one.Hosts) > 0 {
			hosts = slices.DeleteFunc(slices.Clone(one.Hosts), func(h string) bool { return !slices.Contains(s.names, h) })
		}
		if one.Hosts = hosts; len(hosts) == 0 {
			return nil, false
		}
		return pathsOf(g, s), true
	}
	byDefault := -1
	for i, s := range servers {
		if s.isDefault && byDefault < 0 {
			byDefault = i
			continue
		}
		all = append(all, hosted(s, pathsOf(g, s))...)
	}
	if byDefault >= 0 {
		all = append(all, r.others(servers[byDefault], one)...)
		all = append(all, pathsOf(g, servers[byDefault])...)
	}
	return simplified(all), true
}

// hosted returns the targets of a server once for each of its names. After the targets of each name comes a target
// that is out, for all other paths of that host.
func hosted(s *server, paths []target) (all []target) {
	for _, h := range s.names {
		for _, t := range paths {
			t.host = h
			all = append(all, t)
		}
		all = append(all, target{host: h, path: everyPath})
	}
	return all
}

// others returns targets that are out for the hosts of all servers except the default one.
func (r *reader) others(byDefault *server, one *importedRule) (all []target) {
	for _, s := range r.servers {
		if s == byDefault || s.isDefault {
			continue
		}
		for _, h := range s.names {
			all = append(all, target{host: h, path: everyPath})
		}
		if odd := slices.Concat(s.wild, s.unknown); len(odd) > 0 {
			one.notes = append(one.notes, fmt.Sprintf("also counts requests for %s, which have a server of their own (%s)", strings.Join(odd, ", "), s.at.Where()))
		}
	}
	return all
}

// narrowed restricts targets to the methods and paths of a branch.
func narrowed(targets []target, b *branch) []target {
	if len(b.methods)+len(b.notMethods)+len(b.paths.patterns)+len(b.notPaths.patterns) == 0 {
		return targets
	}
	var all []target
	if slices.Contains(b.notMethods, http.MethodGet) && !slices.Contains(b.notMethods, http.MethodHead) {
		for _, t := range targets { // excluding GET below also excludes HEAD, because the pattern GET matches HEAD
			t.method = http.MethodHead
			all = append(all, t)
		}
	}
	for _, m := range b.notMethods {
		all = append(all, target{method: m, path: everyPath})
	}
	for _, p := range b.notPaths.patterns {
		all = append(all, target{path: p})
	}
	for _, t := range targets {
		if len(b.methods) == 0 {
			all = append(all, within(t, b.paths.patterns)...)
		}
		for _, m := range b.methods {
			t.method = m
			all = append(all, within(t, b.paths.patterns)...)
		}
	}
	return simplified(all)
}

// within returns the targets that patterns and t have in common. If patterns is empty, or t is out, it returns t.
func within(t target, patterns []string) (all []target) {
	if len(patterns) == 0 || !t.in {
		return []target{t}
	}
	for _, p := range patterns {
		if meet(t.path, p) {
			both := t
			both.path = common(t.path, p)
			all = append(all, both)
		}
	}
	return all
}

// roughness adds notes about locations whose requests the patterns do not match exactly.
func roughness(g *group, servers []*server, targets []target, one *importedRule) {
	for _, s := range servers {
		for i := range s.places {
			p := &s.places[i]
			isOf := func(t target) bool { return t.in && slices.Contains(p.paths.patterns, t.path) }
			note := fmt.Sprintf("location %s: %s", p.text, p.paths.rough)
			if g.appliesAt(s, i) && p.paths.rough != "" && !p.unknown && slices.ContainsFunc(targets, isOf) && !slices.Contains(one.notes, note) {
				one.notes = append(one.notes, note)
			}
		}
		if unknown := unknownPlaces(g, s, false); unknown != "" {
			one.notes = append(one.notes, "also counts paths of location "+unknown+", because a policy has no such pattern; nginx has other limits there, or none")
		}
		if unknown := unknownPlaces(g, s, true); unknown != "" {
			one.notes = append(one.notes, "does not count all paths of location "+unknown+", because a policy has no such pattern")
		}
	}
}

// setTargets sets the patterns of the rule. For each target that is out, it adds an override that exempts the
// target's "route".
func (one *importedRule) setTargets(targets []target) {
	if len(targets) == 1 && targets[0].pattern() == everyPath {
		return
	}
	var in []string
	for _, t := range targets {
		one.Match = append(one.Match, t.pattern())
		if t.in {
			in = append(in, t.pattern())
			continue
		}
		one.overrides = append(one.overrides, policy.Override{
			Rule: one.Name, Key: map[string]string{"route": t.pattern()}, Exempt: true, Reason: "nginx has other limits there, or none",
		})
	}
	if len(one.overrides) == 0 {
		return
	}
	one.Key = append(one.Key, "route")
	one.keepOnError(in)
	if len(in) > 1 {
		one.notes = append(one.notes, "nginx counts these patterns together; here each counts separately, because the rule excludes other patterns")
	}
}

// keepOnError sets on_error if excluded patterns change its default. For example, a rule that matches a login
// denies during outages by default, even if the login is only an excluded pattern.
func (one *importedRule) keepOnError(in []string) {
	onError := func(match []string) (found sluice.OnError) {
		rule := one.Rule
		rule.Match = match
		if p, err := policy.Compile(policy.Document{Rules: []policy.Rule{rule}}); err == nil {
			found = p.Outages()[0].OnError
		}
		return found
	}
	if want := onError(in); want != onError(one.Match) {
		one.OnError = want.String()
	}
}

// problem returns the errors of the rule, or "" if it is valid.
func (one *importedRule) problem() string {
	_, err := policy.Compile(policy.Document{Rules: []policy.Rule{one.Rule}, Overrides: one.overrides})
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

var notInNames = regexp.MustCompile(`[^a-z0-9._-]+`)

// freeName returns a name that no other rule has.
func freeName(zone string, names map[string]bool) string {
	name := strings.TrimLeft(notInNames.ReplaceAllString(strings.ToLower(zone), "-"), "._-")
	if name = cmp.Or(name, "zone"); len(name) > 56 {
		name = name[:56]
	}
	free := name
	for i := 2; names[free]; i++ {
		free = fmt.Sprintf("%s-%d", name, i)
	}
	names[free] = true
	return free
}

// passedOn adds comments about directives that answer requests or pass them on to other locations.
func (r *reader) passedOn(all []*conf.Directive) {
	at := map[string][]string{}
	r.findPassing(all, at)
	for _, name := range slices.Sorted(maps.Keys(at)) {
		lines := at[name]
		if len(lines) > maxLines {
			lines = append(lines[:maxLines:maxLines], fmt.Sprintf("%d more", len(lines)-maxLines))
		}
		r.notes = append(r.notes, fmt.Sprintf("%s: %s is ignored; the limits are those of the location for the original path of the request", strings.Join(lines, ", "), name))
	}
}

// isRefusal reports whether a parameter is a usual status of denials by limits.
func isRefusal(status string) bool { return status == "429" || status == "503" || status == "498" }

// maxLines bounds the lines of a configuration that are named in a comment.
const maxLines = 5

func (r *reader) findPassing(all []*conf.Directive, at map[string][]string) {
	for _, d := range all {
		switch {
		case d.Name == "error_page" && slices.ContainsFunc(d.Args, isRefusal):
			r.note(d, "error_page %s: write the page in the policy's setting \"answers\"", strings.Join(d.Args, " "))
		case d.Name == "try_files", d.Name == "rewrite", d.Name == "if" && (names(d.Block, "return") || names(d.Block, "rewrite")):
			at[d.Name] = append(at[d.Name], d.Where())
			continue
		}
		r.findPassing(d.Block, at)
	}
}
