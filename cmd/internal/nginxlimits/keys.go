package nginxlimits

import (
	"fmt"
	"slices"
	"strings"
)

// headerName returns the name of a header from its form in a variable, such as X-Api-Key from x_api_key.
func headerName(variable string) string {
	words := strings.Split(variable, "_")
	for i, w := range words {
		if w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "-")
}

// zoneKey is the key of a rule, translated from a zone's key.
type zoneKey struct {
	parts    []string
	missing  string
	byServer bool     // the key contains $server_name
	always   bool     // the key is not empty even if $server_name is empty
	notes    []string // differences from nginx
}

// keyParts has the key parts for variables of nginx.
var keyParts = map[string]string{
	"binary_remote_addr": "client_ip", "remote_addr": "client_ip", "host": "host", "http_host": "host",
	"request_method": "method", "uri": "path", "document_uri": "path", "request_uri": "path",
}

// keyOfPieces translates the value of a zone's key. It returns an error if a policy has no such key.
func keyOfPieces(value []piece) (k zoneKey, err error) {
	optional := false // a request may lack a part
	for _, p := range value {
		switch part := keyParts[p.variable]; {
		case p.variable == "":
			k.always = k.always || p.text != ""
		case p.variable == "server_name":
			k.byServer = true
		case part != "":
			k.always = true
			k.add(part, p.variable)
		default:
			if part = clientPart(p.variable); part == "" {
				return k, fmt.Errorf("a policy has no key part for $%s", p.variable)
			}
			optional = true
			k.add(part, p.variable)
		}
	}
	switch {
	case !optional || k.always || k.byServer:
	case len(k.parts) == 1:
		k.missing = "skip"
	default:
		k.notes = append(k.notes, "nginx does not count requests without any part of the key; here they share one count")
	}
	return k, nil
}

// keyNotes has comments for variables that differ from their key parts.
var keyNotes = map[string]string{
	"request_uri":           "the key has the path of $request_uri without the query, because clients could evade the limit with the query",
	"http_host":             "the key has the host without the port",
	"http_x_forwarded_for":  addressNote,
	"http_x_real_ip":        addressNote,
	"http_cf_connecting_ip": addressNote,
}

const addressNote = "clients choose the value of this header unless a proxy sets it: prefer client_ip with trusted_proxies"

// add adds a part for a variable.
func (k *zoneKey) add(part, variable string) {
	if note := keyNotes[variable]; note != "" {
		k.notes = append(k.notes, note)
	}
	if !slices.Contains(k.parts, part) {
		k.parts = append(k.parts, part)
	}
}

// clientPart returns the key part for a variable that may be empty.
func clientPart(name string) string {
	if rest, ok := strings.CutPrefix(name, "http_"); ok {
		return "header:" + headerName(rest)
	}
	if rest, ok := strings.CutPrefix(name, "cookie_"); ok {
		return "cookie:" + rest
	}
	if rest, ok := strings.CutPrefix(name, "arg_"); ok {
		return "query:" + rest
	}
	return ""
}
