package openapi

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Operation is a method of a path.
type Operation struct {
	Method  string // "" means any method
	Path    string // the template, as written
	ID      string // the operationId, or ""
	Summary string
	Tags    []string
	Line    int

	bases  []base     // the hosts and paths of its servers
	node   *yaml.Node // the operation
	item   *yaml.Node // the path item
	sample map[string]string
}

// String returns the method and the path.
func (o *Operation) String() string {
	return strings.TrimSpace(cmp.Or(o.Method, "any method of") + " " + o.Path)
}

// methods has the keys of operations in a path item, with their methods.
var methods = map[string]string{
	"get": "GET", "put": "PUT", "post": "POST", "delete": "DELETE", "options": "OPTIONS", "head": "HEAD",
	"patch": "PATCH", "trace": "TRACE", "query": "QUERY",
	"x-amazon-apigateway-any-method": "", "x-yc-apigateway-any-method": "",
}

func (d *Document) readPaths() {
	for key, value := range pairs(d.field(d.root, "paths")) {
		switch item := d.resolve(value, 0); {
		case strings.HasPrefix(key.Value, "x-"):
		case !strings.HasPrefix(key.Value, "/"):
			d.leave(key.Line, `write it as in "/users"`, "the path %.60q does not start with a slash", key.Value)
		case item == nil || item.Kind != yaml.MappingNode:
			d.leave(key.Line, "write its methods below it, or a reference to them", "the path %.60q has no methods", key.Value)
		case lookup(item, "$ref") != nil:
			d.leave(key.Line, "bundle the files into one first", "the path %.60q is in another file, %.60q", key.Value, text(lookup(item, "$ref")))
		default:
			d.readItem(key.Value, item)
		}
	}
}

// readItem reads the operations of a path.
func (d *Document) readItem(path string, item *yaml.Node) {
	for key, value := range pairs(item) {
		method, found := methods[key.Value]
		if !found {
			continue
		}
		node := d.resolve(value, 0)
		if node == nil || node.Kind != yaml.MappingNode {
			d.leave(key.Line, "describe it, or omit it", "%s %.60s is not an operation", method, path)
			continue
		}
		o := Operation{Method: method, Path: path, Line: key.Line, node: node, item: item}
		o.ID, o.Summary = text(d.field(node, "operationId")), text(d.field(node, "summary"))
		for _, tag := range d.items(d.field(node, "tags")) {
			o.Tags = append(o.Tags, text(tag))
		}
		o.sample = d.samples(item, node)
		o.bases = d.bases(item, node)
		d.Operations = append(d.Operations, o)
	}
}

// samples returns a value for each path parameter: the first allowed value, or an example.
func (d *Document) samples(item, node *yaml.Node) map[string]string {
	all := map[string]string{}
	for _, p := range slices.Concat(d.items(d.field(item, "parameters")), d.items(d.field(node, "parameters"))) {
		if text(d.field(p, "in")) != "path" {
			continue
		}
		of := cmp.Or(d.field(p, "schema"), p)
		value := text(d.field(of, "const"))
		if allowed := d.items(d.field(of, "enum")); len(allowed) > 0 {
			value = text(allowed[0])
		}
		value = cmp.Or(value, text(d.field(p, "example")), text(d.field(of, "example")), text(d.field(of, "default")))
		if value != "" {
			all[text(d.field(p, "name"))] = value
		}
	}
	return all
}

// base is the host and the path of a server.
type base struct {
	host string // in lower case, without a port; "" if it is unknown
	path string // without a final slash
}

// bases returns the bases of an operation's servers. If the operation lists no servers, these are the servers of its
// path or, without any, those of the document.
func (d *Document) bases(item, node *yaml.Node) (all []base) {
	if d.swagger {
		return []base{{hostOf(text(d.field(d.root, "host"))), cleanBase(text(d.field(d.root, "basePath")))}}
	}
	var servers []*yaml.Node
	for _, n := range []*yaml.Node{node, item, d.root} {
		if servers = d.items(d.field(n, "servers")); len(servers) > 0 {
			break
		}
	}
	for _, s := range servers {
		for _, url := range d.urls(s) {
			all = appendNew(all, baseOf(url))
		}
	}
	if len(all) == 0 {
		all = []base{{}}
	}
	return all
}

// maxURLs bounds the URLs of a server with variables.
const maxURLs = 16

// urls returns the URLs of a server. If a variable lists its values, the server has a URL for each value; other
// variables have their default.
func (d *Document) urls(server *yaml.Node) []string {
	all := []string{text(d.field(server, "url"))}
	for name, variable := range pairs(d.field(server, "variables")) {
		variable = d.resolve(variable, 0)
		values := []string{text(d.field(variable, "default"))}
		for _, v := range d.items(d.field(variable, "enum")) {
			values = appendNew(values, text(v))
		}
		if len(all)*len(values) > maxURLs {
			values = values[:1]
		}
		var next []string
		for _, url := range all {
			for _, v := range values {
				next = append(next, strings.ReplaceAll(url, "{"+name.Value+"}", v))
			}
		}
		all = next
	}
	return all
}

// baseOf returns the base of a server's URL, which may be relative.
func baseOf(url string) base {
	url, _, _ = strings.Cut(url, "?")
	url, _, _ = strings.Cut(url, "#")
	_, rest, found := strings.Cut(url, "://")
	if !found {
		return base{path: cleanBase(url)}
	}
	host, path, _ := strings.Cut(rest, "/")
	return base{hostOf(host), cleanBase(path)}
}

// hostOf returns a host in the form of rules, or "" for an unknown or local host.
func hostOf(host string) string {
	host = strings.ToLower(host[strings.LastIndexByte(host, '@')+1:])
	if !strings.HasPrefix(host, "[") {
		host, _, _ = strings.Cut(host, ":")
	}
	if strings.ContainsAny(host, "{}[]") || host == "localhost" || strings.HasPrefix(host, "127.") || host == "0.0.0.0" {
		return ""
	}
	return host
}

// cleanBase returns a base path that starts with a slash and does not end with one, or "".
func cleanBase(path string) string {
	var segments []string
	for s := range strings.SplitSeq(path, "/") {
		if s != "" && s != "." {
			segments = append(segments, s)
		}
	}
	if len(segments) == 0 {
		return ""
	}
	return "/" + strings.Join(segments, "/")
}
