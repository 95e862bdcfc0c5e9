package authrequest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Asker is a kind of proxy, with the optional data that its configuration sends.
type Asker struct {
	kind *kind
	body bool // the proxy sends the body of the request
	id   bool // the proxy sets X-Request-Id, which identifies the request
}

// kind is a kind of proxy, and the fields in which it describes the client's request. If the name of a field is
// empty, that property is taken from the proxy's own request.
type kind struct {
	name, product             string
	method, uri, host, client string
	list                      bool // the field client is a list, to which the proxy appends its peer
	redirects                 bool // the answer to an allowed request has the field X-Accel-Redirect
	deny                      int  // the status of all denials; 0 means that each denial keeps its own status
	only4xx                   bool // the proxy treats a 5xx as a failure of Sluice
	noBody, noID              string
	example                   string // a file in deploy/
}

var kinds = []kind{
	{
		name: "nginx", product: "nginx", example: "deploy/nginx/auth-request.conf",
		method: "X-Original-Method", uri: "X-Original-Uri", host: "X-Original-Host", client: "X-Real-Ip",
		deny:   403, // nginx turns other statuses, except 401, into a 500
		noBody: "auth_request does not send the body: use the configuration of nginx-accel",
	},
	{
		name: "nginx-accel", product: "nginx", example: "deploy/nginx/accel.conf",
		method: "X-Original-Method", uri: "X-Original-Uri", host: "X-Original-Host", client: "X-Real-Ip",
		redirects: true,
	},
	{
		name: "caddy", product: "Caddy", example: "deploy/caddy/Caddyfile",
		method: "X-Forwarded-Method", uri: "X-Forwarded-Uri", host: "X-Forwarded-Host", client: "X-Forwarded-For", list: true,
		noBody: "forward_auth does not send the body: for such rules, put Sluice in front as a gateway",
	},
	{
		name: "traefik", product: "Traefik", example: "deploy/traefik/dynamic.yml",
		method: "X-Forwarded-Method", uri: "X-Forwarded-Uri", host: "X-Forwarded-Host", client: "X-Forwarded-For", list: true,
		noID: "ForwardAuth cannot make an ID for a request, and a client could choose it",
	},
	{
		name: "envoy", product: "Envoy", example: "deploy/envoy/ext_authz.yaml",
		client: "X-Sluice-Client", only4xx: true,
	},
}

// ParseAsker parses the name of a kind of proxy, followed by "+body" if its configuration sends bodies, and by
// "+id" if it sets X-Request-Id.
func ParseAsker(s string) (a Asker, err error) {
	name, options, _ := strings.Cut(s, "+")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return a, fmt.Errorf("unknown proxy kind %.40q: use one of %s", name, known())
	}
	a.kind = &kinds[i]
	for option := range strings.SplitSeq(options, "+") {
		if err := a.enable(option); err != nil && options != "" {
			return a, fmt.Errorf("%.40q: %w", s, err)
		}
	}
	return a, nil
}

func known() string {
	var names []string
	for i := range kinds {
		names = append(names, kinds[i].name)
	}
	return strings.Join(names, ", ")
}

func (a *Asker) enable(option string) error {
	switch {
	case option == "body" && a.kind.noBody != "":
		return errors.New(a.kind.noBody)
	case option == "id" && a.kind.noID != "":
		return errors.New(a.kind.noID)
	case option == "body":
		a.body = true
	case option == "id":
		a.id = true
	default:
		return fmt.Errorf("unknown option %.40q: write +body if the proxy sends bodies, and +id if it sets X-Request-Id", "+"+option)
	}
	return nil
}

// String returns a in the syntax of ParseAsker.
func (a Asker) String() string {
	s := a.kind.name
	if a.body {
		s += "+body"
	}
	if a.id {
		s += "+id"
	}
	return s
}

// Name returns the kind of proxy, which is also the last part of its path.
func (a Asker) Name() string { return a.kind.name }

// BringsBody reports whether the proxy sends the bodies of requests. If it does not, the result mend suggests what
// to do for rules that need bodies.
func (a Asker) BringsBody() (brings bool, mend string) {
	if a.body {
		return true, ""
	}
	if a.kind.noBody != "" {
		return false, a.kind.noBody
	}
	return false, fmt.Sprintf("have the proxy send bodies, as in %s, and write %s+body", a.kind.example, a.kind.name)
}
