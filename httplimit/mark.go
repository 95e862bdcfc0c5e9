package httplimit

import (
	"maps"
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/policy"
)

// dropMarks removes the field [policy.OverField] that a client may have sent, in every spelling that a server may
// read as its name: CGI reads Sluice_Over as Sluice-Over, and some servers read other characters as "-", too.
func dropMarks(h http.Header) {
	maps.DeleteFunc(h, func(name string, _ []string) bool { return isMark(name) })
}

func isMark(name string) bool {
	if len(name) != len(policy.OverField) {
		return false
	}
	for i := range len(name) {
		is, want := name[i], policy.OverField[i]
		if want != '-' && is|0x20 != want|0x20 || want == '-' && isAlnum(is) {
			return false
		}
	}
	return true
}

func isAlnum(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' }

// mark sets [policy.OverField] to the names of the rules that the request exceeds and that only mark it.
func mark(h http.Header, d *policy.Decision) {
	if over := d.Over(); over != nil {
		h[policy.OverField] = []string{strings.Join(over, ", ")}
		keepNominated(h)
	}
}

// keepNominated removes [policy.OverField] from the list in the Connection field. Otherwise a proxy behind the
// middleware would remove the field.
func keepNominated(h http.Header) {
	var kept []string
	for _, line := range h["Connection"] {
		for option := range strings.SplitSeq(line, ",") {
			if option = strings.TrimSpace(option); option != "" && !isMark(option) {
				kept = append(kept, option)
			}
		}
	}
	if kept == nil {
		delete(h, "Connection")
		return
	}
	h["Connection"] = []string{strings.Join(kept, ", ")}
}
