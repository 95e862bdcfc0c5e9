package exchange

import (
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/internal/clientip"
)

// maxConnection bounds the bytes of the Connection fields, and so the number of names in them.
const maxConnection = 1000

// DropNominated removes the fields that Connection lists. A proxy behind this one would remove them, too, and a
// field that no server reads must not be a key of a limit.
//
// Fields about this connection stay. The fields that proxies in front of this one write stay, too, because the
// limits read them, and a client must not be able to remove them. The parameter forwarded is the name of an
// additional such field, or "".
//
// If Connection is too long, DropNominated removes nothing, and returns the reason.
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
