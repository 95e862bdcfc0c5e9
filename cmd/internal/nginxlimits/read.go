package nginxlimits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// reader reads the limits of a configuration.
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

// note adds a comment about a directive that is not translated.
func (r *reader) note(d *conf.Directive, format string, args ...any) {
	note := fmt.Sprintf("%s: %s", d.Where(), fmt.Sprintf(format, args...))
	if !slices.Contains(r.notes, note) {
		r.notes = append(r.notes, note)
	}
}

// read reads a configuration: a whole one, or the contents of its http block or of a server.
func (r *reader) read(all []*conf.Directive) error {
	http := r.httpBlock(all)
	r.define(http)
	if err := r.zones(http); err != nil {
		return err
	}
	top := scope{reqStatus: defaultStatus, connStatus: defaultStatus}
	if err := top.apply(r, http); err != nil {
		return err
	}
	if i := slices.IndexFunc(http, func(d *conf.Directive) bool { return d.Name == "location" }); i >= 0 { // what stands in a server
		http = []*conf.Directive{{Name: "server", Block: http, File: http[i].File, Line: http[i].Line}}
	}
	for _, d := range http {
		if d.Name == "server" && d.Block != nil {
			if err := r.server(d, top); err != nil {
				return err
			}
		}
	}
	if len(r.servers) == 0 { // a part of a configuration, without its servers
		r.servers = []*server{{places: []place{{kind: serverPlace, paths: pathSet{patterns: []string{everyPath}}, scope: top}}}}
	}
	if !slices.ContainsFunc(r.servers, func(s *server) bool { return s.isDefault }) {
		r.servers[0].isDefault = true
	}
	return nil
}

// httpBlock returns the directives of the http block, and those outside of all blocks.
func (r *reader) httpBlock(all []*conf.Directive) (http []*conf.Directive) {
	for _, d := range all {
		switch d.Name {
		case "http":
			http = append(http, d.Block...)
		case "stream", "mail":
			if names(d.Block, "limit_conn") {
				r.note(d, "the limits of %s are for connections that are not HTTP", d.Name)
			}
		default:
			http = append(http, d)
		}
	}
	return http
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
