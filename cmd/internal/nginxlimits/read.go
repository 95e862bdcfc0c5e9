package nginxlimits

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/nginxlimits/conf"
)

// reader reads the limits in a configuration.
type reader struct {
	variables
	zones       []*zoneDefinition
	servers     []*server
	trusted     []string
	proxies     *conf.Directive   // the last set_real_ip_from in trusted
	realHeaders []*conf.Directive // real_ip_header
	recursive   bool              // real_ip_recursive
	notes       []string          // directives that are not translated
}

// note adds a comment about a directive that cannot be translated.
func (r *reader) note(d *conf.Directive, format string, args ...any) {
	note := fmt.Sprintf("%s: %s", d.Where(), fmt.Sprintf(format, args...))
	if !slices.Contains(r.notes, note) {
		r.notes = append(r.notes, note)
	}
}

// read reads a whole configuration, or the contents of an http block or of a server.
func (r *reader) read(all []*conf.Directive) error {
	http := r.httpBlock(all)
	r.define(http)
	if err := r.readZones(http); err != nil {
		return err
	}
	top := scope{reqStatus: defaultStatus, connStatus: defaultStatus}
	if err := top.apply(r, http); err != nil {
		return err
	}
	if i := slices.IndexFunc(http, func(d *conf.Directive) bool { return d.Name == "location" }); i >= 0 { // the file has the contents of a server
		http = []*conf.Directive{{Name: "server", Block: http, File: http[i].File, Line: http[i].Line}}
	}
	for _, d := range http {
		if d.Name == "server" && d.Block != nil {
			if err := r.server(d, top); err != nil {
				return err
			}
		}
	}
	r.trustForwarded()
	if len(r.servers) == 0 { // the file is a part of a configuration without servers
		r.servers = []*server{{places: []place{{kind: serverPlace, paths: pathSet{patterns: []string{everyPath}}, scope: top}}}}
	}
	if !slices.ContainsFunc(r.servers, func(s *server) bool { return s.isDefault }) {
		r.servers[0].isDefault = true
	}
	return nil
}

// httpBlock returns the directives in the http block, and those outside of it except stream and mail.
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

// names reports whether a block, or a block inside it, has a directive with the given name.
func names(all []*conf.Directive, name string) bool {
	return slices.ContainsFunc(all, func(d *conf.Directive) bool { return d.Name == name || names(d.Block, name) })
}

// define records all variables, including those defined in blocks.
func (r *reader) define(all []*conf.Directive) {
	for _, d := range all {
		if r.add(d); d.Name != "map" && d.Name != "geo" {
			r.define(d.Block)
		}
	}
}

// realIP reads the proxies that nginx trusts, and the header in which they send the client's address.
func (r *reader) realIP(d *conf.Directive) {
	switch {
	case len(d.Args) != 1:
	case d.Name == "real_ip_recursive":
		r.recursive = r.recursive || d.Args[0] == "on"
	case d.Name == "real_ip_header":
		r.realHeaders = append(r.realHeaders, d)
	default:
		r.trust(d)
	}
}

// trust adds a proxy, or a network of proxies.
func (r *reader) trust(d *conf.Directive) {
	p, err := parseNetwork(d.Args[0])
	switch {
	case d.Args[0] == "unix:":
	case err != nil:
		r.note(d, "trusted_proxies must be addresses and networks, but %s is neither", d.Args[0])
	case p.Bits() == 0:
		r.note(d, "if trusted_proxies contains all addresses, clients can choose their address: list only the addresses of your proxies")
	case !slices.Contains(r.trusted, shortPrefix(p)):
		r.trusted = append(r.trusted, shortPrefix(p))
		r.proxies = d
	}
}

// trustForwarded omits the proxies unless they set X-Forwarded-For, which Sluice reads. If a proxy sets only
// another header, the client could set X-Forwarded-For.
func (r *reader) trustForwarded() {
	if r.proxies == nil {
		return
	}
	at, header := r.proxies, "X-Real-IP" // nginx's default
	if len(r.realHeaders) > 0 {
		odd := slices.IndexFunc(r.realHeaders, func(d *conf.Directive) bool { return !strings.EqualFold(d.Args[0], "X-Forwarded-For") })
		if odd < 0 {
			return
		}
		at, header = r.realHeaders[odd], r.realHeaders[odd].Args[0]
	}
	r.note(at, "trusted_proxies: nginx reads the address of the client from %s, but Sluice from X-Forwarded-For: have your proxies set this field, then add trusted_proxies: [%s]", header, strings.Join(r.trusted, ", "))
	r.trusted = nil
}
