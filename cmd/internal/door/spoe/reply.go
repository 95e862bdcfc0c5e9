package spoe

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/sluicehq/sluice/answer"
	"github.com/sluicehq/sluice/policy"
)

const (
	actionSetVar     = 1
	argumentsOfSet   = 3
	scopeTransaction = 2
)

// reply makes an ACK frame that sets variables. Variables that do not fit into the frame are omitted. The most
// important variables come first, and body comes last.
type reply struct {
	dst  []byte
	from int
	most int // the maximum length of dst in bytes
}

func beginReply(dst []byte, h head, size int) reply {
	from := len(dst)
	dst = beginFrame(dst, head{kind: ack, stream: h.stream, frame: h.frame})
	return reply{dst, from, from + frameLength + size}
}

// set appends a variable. The function add appends its value.
func (r *reply) set(name string, add func(dst []byte) []byte) {
	dst := append(r.dst, actionSetVar, argumentsOfSet, scopeTransaction)
	dst = appendVarint(dst, uint64(len(name)))
	for i := range len(name) {
		dst = append(dst, variableByte(name[i]))
	}
	if dst = add(dst); len(dst) <= r.most {
		r.dst = dst
	}
}

func (r *reply) setText(name, text string) {
	r.set(name, func(dst []byte) []byte { return appendText(append(dst, typeString), text) })
}

// setAnswer sets the variables of the answer a to the decision d.
func (r *reply) setAnswer(a *answer.Answer, d *policy.Decision, fields http.Header) {
	value := typeBool
	if d.Allowed {
		value |= flagTrue
	}
	r.set("allowed", func(dst []byte) []byte { return append(dst, value) })
	r.set("status", func(dst []byte) []byte { return appendVarint(append(dst, typeInt32), uint64(a.Status)) })
	if over := d.Over(); over != nil {
		r.setText("over", strings.Join(over, ", "))
	}
	for name, texts := range fields {
		if len(texts) > 0 {
			r.setText(name, texts[0])
		}
	}
	if body := a.Body(); len(body) > 0 {
		r.set("body", func(dst []byte) []byte { return appendText(append(dst, typeString), oneLine(body)) })
	}
}

// oneLine returns a body without line breaks, which HAProxy would write as "%0A".
func oneLine(body []byte) []byte {
	body = bytes.TrimRight(body, "\r\n")
	if bytes.IndexByte(body, '\n') < 0 {
		return body
	}
	return bytes.Map(func(c rune) rune {
		if c == '\n' || c == '\r' {
			return ' '
		}
		return c
	}, body)
}

// variableByte converts a byte of a field's name to a byte of the variable's name, as in retry_after for
// Retry-After.
func variableByte(c byte) byte {
	switch {
	case 'A' <= c && c <= 'Z':
		return c - 'A' + 'a'
	case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
		return c
	}
	return '_'
}
