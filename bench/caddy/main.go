// Command caddy is Caddy with nothing but its reverse proxy and the rate limits that are
// made for it. It is a module of its own, for it brings a hundred others.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/mholt/caddy-ratelimit"
)

func main() { caddycmd.Main() }
