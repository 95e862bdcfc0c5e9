package exchange

import (
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/internal/clientip"
)

// maxConnection is the most bytes of a Connection field, of which each may be a name.
const maxConnection = 1000

// DropNominated removes the fields that Connection names. A proxy behind this one does so before it passes the
// request on, and a field that no server reads is no key of a limit.
//
// Fields that are about this connection stay, and so do those that proxies in front of us
// write, of which forwarded may name another one: the limits read them, and a client must not
// take them away.
//
// It returns what is wrong with Connection, or "". With too many names it removes none.
func DropNominated(h http.Header, forwarded string) (fault string) {
	lines := h["Connection"]
	size := len(lines)
	for _, line := range lines {
		size += len(line)
	}
	if size > maxConnection {
		return "The Connection field must not have more than 1000 bytes."
	}
	for _, line := range lines {
		for option := range strings.SplitSeq(line, ",") {
			name := http.CanonicalHeaderKey(clientip.TrimBlanks(option))
			switch name {
			case "Connection", "Upgrade", "Te", "Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto":
				continue
			}
			if forwarded == "" || !strings.EqualFold(name, forwarded) {
				delete(h, name)
			}
		}
	}
	return ""
}
