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
	body bool // it sends the body of the request
	id   bool // it sets X-Request-Id, which identifies the request
}

// kind is a kind of proxy, and the fields in which it describes the client's request. If the name of a field is
// empty, the proxy's own request has that part.
type kind struct {
	name, product             string
	method, uri, host, client string
	list                      bool // client is a list, to which the proxy appends its peer
	redirects                 bool // passing is X-Accel-Redirect
	deny                      int  // if not 0, the status of all denials
	only4xx                   bool // the proxy takes a 5xx for a failure of Sluice
	noBody, noID              string
	example                   string // file in deploy/
}

var kinds = []kind{
	{
		name: "nginx", product: "nginx", example: "deploy/nginx/auth-request.conf",
		method: "X-Original-Method", uri: "X-Original-Uri", host: "X-Original-Host", client: "X-Real-Ip",
		deny:   403, // nginx turns other statuses, except 401, into a 500
		noBody: "auth_request asks without the body: ask as nginx-accel does",
	},
	{
		name: "nginx-accel", product: "nginx", example: "deploy/nginx/accel.conf",
		method: "X-Original-Method", uri: "X-Original-Uri", host: "X-Original-Host", client: "X-Real-Ip",
		redirects: true,
	},
	{
		name: "caddy", product: "Caddy", example: "deploy/caddy/Caddyfile",
		method: "X-Forwarded-Method", uri: "X-Forwarded-Uri", host: "X-Forwarded-Host", client: "X-Forwarded-For", list: true,
		noBody: "forward_auth asks without the body: put Sluice in front as a gateway for such rules",
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

// ParseAsker reads the name of a kind of proxy, with "+body" if its configuration sends bodies, and
// with "+id" if it sets X-Request-Id.
func ParseAsker(s string) (a Asker, err error) {
	name, options, _ := strings.Cut(s, "+")
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return a, fmt.Errorf("there is no proxy kind %.40q: there are %s", name, known())
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
		return fmt.Errorf("there is no %.40q: write +body where bodies come, and +id where the proxy sets X-Request-Id", "+"+option)
	}
	return nil
}

// String returns what ParseAsker reads.
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

// BringsBody reports whether the proxy sends the bodies of requests. If not, mend is a hint for rules that need
// bodies.
func (a Asker) BringsBody() (brings bool, mend string) {
	if a.body {
		return true, ""
	}
	if a.kind.noBody != "" {
		return false, a.kind.noBody
	}
	return false, fmt.Sprintf("have it send them, as %s shows, and write %s+body", a.kind.example, a.kind.name)
}
