//go:build long

package frameworks

import (
	"fmt"
	"slices"
	"strings"
)

// shrink removes the parts that a request does not need for its effect: fields, and pieces of the target and the body.
func shrink(raw string, does func(string) bool) string {
	tries := 300
	better := func(raw string) bool {
		tries--
		return tries > 0 && does(raw)
	}
	raw = withoutFields(raw, better)
	line, rest, _ := strings.Cut(raw, "\r\n")
	method, target, _ := strings.Cut(line, " ")
	target, version, _ := cutLast(target, " ")
	target = withoutPieces(target, func(s string) bool { return better(method + " " + s + " " + version + "\r\n" + rest) })
	head, body, _ := strings.Cut(method+" "+target+" "+version+"\r\n"+rest, "\r\n\r\n")
	length := fmt.Sprintf("Content-Length: %d", len(body))
	join := func(body string) string {
		return strings.Replace(head, length, fmt.Sprintf("Content-Length: %d", len(body)), 1) + "\r\n\r\n" + body
	}
	return join(withoutPieces(body, func(s string) bool { return better(join(s)) }))
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// withoutFields removes lines of the head.
func withoutFields(raw string, does func(string) bool) string {
	head, body, _ := strings.Cut(raw, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	for i := len(lines) - 1; i > 0; i-- {
		less := slices.Delete(slices.Clone(lines), i, i+1)
		if !strings.HasPrefix(lines[i], "X-Trial") && does(strings.Join(less, "\r\n")+"\r\n\r\n"+body) {
			lines = less
		}
	}
	return strings.Join(lines, "\r\n") + "\r\n\r\n" + body
}

// withoutPieces removes pieces of a text, large ones first.
func withoutPieces(s string, does func(string) bool) string {
	for size := (len(s) + 1) / 2; size > 0; size /= 2 {
		for i := 0; i+size <= len(s); {
			if less := s[:i] + s[i+size:]; does(less) {
				s = less
			} else {
				i += size
			}
		}
	}
	return s
}
