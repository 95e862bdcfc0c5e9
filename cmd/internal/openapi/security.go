package openapi

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// clientIP is the key part for clients without credentials.
const clientIP = "client_ip"

// apiKey is the key part for tokens in "Authorization: Bearer", and for X-API-Key.
const apiKey = "api_key"

// credentials has the keys that identify the clients of an operation, one for each alternative that the operation
// accepts.
type credentials struct {
	keys     [][]string
	optional bool
	notes    []string // notes about security schemes
}

// credentialsOf returns the credentials that an operation requires.
func (d *Document) credentialsOf(o *Operation) credentials {
	security := d.field(o.node, "security")
	if security == nil {
		security = d.field(d.root, "security")
	}
	c := credentials{}
	for _, requirement := range d.items(security) {
		key := d.keyOf(requirement, &c)
		if len(key) == 0 {
			c.optional, c.keys = true, nil
			break
		}
		if !slices.ContainsFunc(c.keys, func(k []string) bool { return slices.Equal(k, key) }) {
			c.keys = append(c.keys, key)
		}
	}
	byAddress := func(key []string) bool { return slices.Equal(key, []string{clientIP}) }
	switch {
	case len(c.keys) == 0 || slices.ContainsFunc(c.keys, byAddress): // every request has an address
		c.keys = [][]string{{clientIP}}
	case !slices.ContainsFunc(c.keys, func(k []string) bool { return !coveredByAPIKey(k) }) && len(c.keys) > 1:
		c.keys = [][]string{{apiKey}}
	}
	return c
}

// coveredByAPIKey reports whether the part api_key also reads the credentials of a key.
func coveredByAPIKey(key []string) bool {
	return len(key) == 1 && (key[0] == apiKey || strings.EqualFold(key[0], "header:X-API-Key"))
}

func (c *credentials) note(format string, args ...any) {
	c.notes = appendNew(c.notes, fmt.Sprintf(format, args...))
}

// maxParts bounds the parts of a key.
const maxParts = 8

// keyOf returns the key for one alternative. It is empty if the alternative requires no credentials.
func (d *Document) keyOf(requirement *yaml.Node, c *credentials) (key []string) {
	schemes := d.field(d.field(d.root, "components"), "securitySchemes")
	if d.swagger {
		schemes = d.field(d.root, "securityDefinitions")
	}
	for name := range pairs(requirement) {
		part := d.partOf(name.Value, d.field(schemes, name.Value), c)
		if !slices.Contains(key, part) && len(key) < maxParts {
			key = append(key, part)
		}
	}
	return key
}

// partOf returns the key part for a security scheme.
func (d *Document) partOf(name string, scheme *yaml.Node, c *credentials) string {
	kind, of := text(d.field(scheme, "type")), text(d.field(scheme, "name"))
	switch kind {
	case "apiKey":
		switch in := text(d.field(scheme, "in")); in {
		case "header", "query", "cookie":
			if strings.EqualFold(of, "Authorization") && in == "header" {
				return "header:Authorization"
			}
			return in + ":" + of
		}
	case "http", "basic":
		return d.httpPart(name, strings.ToLower(text(d.field(scheme, "scheme"))+map[string]string{"basic": "basic"}[kind]), scheme, c)
	case "oauth2", "openIdConnect":
		c.note("each token of %s has a count of its own, so a client with a new token starts at zero; if the tokens are JWTs, key: [\"jwt:sub\"] counts by user", name)
		return apiKey
	}
	c.note("the security scheme %s has no key part, so rules for it count by address", name)
	return clientIP
}

// httpPart returns the key part for a scheme of the Authorization header.
func (d *Document) httpPart(name, scheme string, n *yaml.Node, c *credentials) string {
	switch {
	case scheme == "bearer" && strings.EqualFold(text(d.field(n, "bearerFormat")), "JWT"):
		c.note("rules for %s count by the subject of its tokens. Sluice does not verify tokens: have a proxy or the upstream verify them", name)
		return "jwt:sub"
	case scheme == "bearer":
		return apiKey
	case scheme == "basic":
		return "header:Authorization"
	}
	c.note("the Authorization header of %s may differ between requests, so rules for it count by address", name)
	return clientIP
}
