// Command caddy is Caddy with only its reverse proxy and the rate limits that exist for it. It is a separate Go
// module, because it depends on a hundred others.
package main

import (
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/reverseproxy"
	_ "github.com/mholt/caddy-ratelimit"
)

func main() { caddycmd.Main() }
