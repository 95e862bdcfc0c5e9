package parts

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/sluicehq/sluice/internal/spelling"
)

// foreignParts maps the names that key parts have in other limiters, folded by [spelling.Fold], to key parts.
var foreignParts = map[string]string{
	"ip": "client_ip", "ipaddress": "client_ip", "address": "client_ip", "client": "client_ip", "remoteip": "client_ip", "sourceip": "client_ip",
	"remoteaddr": "client_ip", "remoteaddress": "client_ip", "binaryremoteaddr": "client_ip", "realip": "client_ip",
	"xforwardedfor": "client_ip", "xrealip": "client_ip",
	"key": "api_key", "token": "api_key", "credential": "api_key", "authorization": "api_key", "bearer": "api_key", "consumer": "api_key",
	"url": "path", "uri": "path", "requesturi": "path", "endpoint": "route",
	"user": "jwt:sub", "userid": "jwt:sub", "sub": "jwt:sub", "username": "body:username",
	"domain": "host", "servername": "host", "verb": "method", "session": "cookie:session",
}

// meantPart returns a hint for an unknown key part.
func meantPart(s string) string {
	s = strings.TrimSpace(s)
	name, arg := s, ""
	if i := strings.IndexAny(s, ":. "); i >= 0 {
		name, arg = s[:i], strings.TrimLeft(s[i+1:], " ")
	}
	meant := ""
	for _, k := range partKinds {
		if spelling.Nearest(name, []string{k.name}) == "" {
			continue
		}
		if meant = k.name; k.arg != "" {
			meant += ":" + cmp.Or(arg, k.arg)
		}
		break
	}
	if known := foreignParts[spelling.Fold(strings.TrimPrefix(s, "$"))]; known != "" {
		meant = known
	}
	switch {
	case meant != "":
		return fmt.Sprintf("did you mean %.60q?", meant)
	case strings.HasPrefix(strings.ToUpper(s), "X-"):
		return fmt.Sprintf("did you mean %.60q?", "header:"+s)
	}
	return "use one of " + known()
}
