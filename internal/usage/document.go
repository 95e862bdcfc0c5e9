package usage

import (
	"bytes"
	"strings"

	"github.com/sluicehq/sluice/internal/jsonscan"
)

// document reads JSON documents in pieces, one document after another. If a document is malformed, the rest of it
// is skipped; numbers before the error count. Values within more than [jsonscan.MaxDepth] objects and arrays are
// skipped without being checked.
type document struct {
	paths   *Paths
	numbers []int64  // the number at each node, or absent
	texts   [3]int64 // the number of bytes of strings, by kind: data, text and delta
	objects int64    // the number of objects at the top of documents
	whole   bool     // whether a whole document has been read
	broken  bool     // whether a document was malformed
	done    bool     // whether a stream has sent its last event or line
	pending bool     // whether the model works in the background

	within token
	expect expect                       // the tokens that may come next; within a quoted token, the kind of this token: a name or a value
	depth  int                          // the number of open objects and arrays
	deep   int                          // the number of further open objects and arrays, which are skipped
	stack  [jsonscan.MaxDepth + 1]level // stack[0] stands for the top, outside of the document
	node   int                          // the node of the next value
	kind   kind                         // the kind of the next value, if it is a string
	last   bool                         // whether the document is the last of a stream
	escape int                          // how many bytes of an unfinished escape were read
	held   int                          // the number of bytes in buf
	buf    [maxToken]byte               // a name or word that continues in the next piece
}

// maxToken is the maximum length of a name and a number, as written. A longer name cannot be part of a configured path,
// and a longer number is malformed.
const maxToken = 256

// absent is the value of a number that has not been read.
const absent = -1

// level is an open object or array.
type level struct {
	node    int // the node of the object, or of the elements of the array
	closing byte
	echo    bool // whether the value repeats the request
}

// token is the kind of an unfinished token, which the next byte continues.
type token uint8

const (
	nothing   token = iota
	quoted          // a name or a string
	word            // a number, true, false or null
	malformed       // the rest of a malformed document
)

// expect is the set of tokens that may come next.
type expect uint8

const (
	value expect = 1 << iota
	name
	colon
	comma
	closing
)

// kind is the kind of a string.
type kind uint8

const (
	data kind = iota
	text
	delta
	echo         // a value that repeats the request
	eventType    // the type of a server-sent event
	isDone       // true in the last line of Ollama's streams
	status       // status of a response of OpenAI's Responses API
	inBackground // true if the model continues after the response
)

// deepest returns the greatest depth at which a member can have the kind k. Deeper members with the same name are
// ordinary data.
func (k kind) deepest() int {
	switch k {
	case eventType, isDone:
		return 1
	case status, inBackground: // in events of OpenAI's Responses API, these members are in the member "response"
		return 2
	}
	return jsonscan.MaxDepth
}

// kindOf returns the kind of a value by the name of its member. It knows the names of OpenAI's Chat Completions and
// Responses APIs, Anthropic, Gemini, Ollama, llama.cpp and vLLM.
func kindOf(name []byte) kind {
	switch string(name) {
	case "content", "text", "response", "refusal", "arguments", "partial_json", "thinking", "reasoning", "reasoning_content":
		return text
	case "delta":
		return delta
	case "type":
		return eventType
	case "done":
		return isDone
	case "metadata", "input", "instructions", "tools":
		return echo
	case "status":
		return status
	case "background":
		return inBackground
	}
	return data
}

// isLast reports whether an event of the given type is the last of a stream of Anthropic or of OpenAI's Responses
// API.
func isLast(eventType []byte) bool {
	switch string(eventType) {
	case "message_stop", "response.completed", "response.incomplete", "response.failed":
		return true
	}
	return false
}

// atTop prepares for the next document.
func (d *document) atTop() {
	d.within, d.expect, d.depth, d.deep, d.node, d.kind, d.last, d.escape, d.held = nothing, value, 0, 0, root, data, false, 0, 0
}

// read reads up to the next line break or the end of b, and returns how many bytes it has read.
func (d *document) read(b []byte) int {
	i := 0
	for i < len(b) && b[i] != '\n' && b[i] != '\r' {
		switch d.within {
		case nothing:
			i = d.readNext(b, i)
		case quoted:
			i = d.readQuoted(b, i)
		case word:
			i = d.readWord(b, i)
		case malformed:
			i++
		}
	}
	return i
}

// readNext reads the token that begins at b[i], or the first piece of it, and returns the index after it.
func (d *document) readNext(b []byte, i int) int {
	c := b[i]
	switch {
	case d.deep > 0:
		d.skip(c)
	case c == '"' && d.expect&(value|name) != 0:
		d.within = quoted
		return d.readQuoted(b, i+1)
	case isWord[c] && d.expect&value != 0:
		d.within = word
		return d.readWord(b, i)
	default:
		d.punctuate(c)
	}
	return i + 1
}

// newline reads a line break. Outside strings, it is white space; within them, it is an error.
func (d *document) newline() {
	switch d.within {
	case quoted:
		d.fail()
	case word:
		d.endWord(d.take(nil))
	}
}

// end ends the document.
func (d *document) end() {
	d.newline()
	if d.depth > 0 && d.within != malformed {
		d.fail()
	}
	d.atTop()
}

func (d *document) fail() { d.broken, d.within = true, malformed }

// punctuate reads a byte outside strings, numbers and literals.
func (d *document) punctuate(c byte) {
	switch {
	case c == ' ' || c == '\t':
	case (c == '{' || c == '[') && d.expect&value != 0:
		d.open(c)
	case c == d.stack[d.depth].closing && d.expect&closing != 0:
		d.depth--
		d.endValue()
	case c == ',' && d.expect&comma != 0:
		d.expect = name
		if d.stack[d.depth].closing == ']' {
			d.expect = value
		}
	case c == ':' && d.expect == colon:
		d.expect = value
	default:
		d.fail()
	}
}

// open opens an object or an array.
func (d *document) open(c byte) {
	if d.depth == jsonscan.MaxDepth {
		d.deep, d.kind = 1, data
		return
	}
	l := level{node: d.node, closing: c + 2, echo: d.kind == echo || d.stack[d.depth].echo} // in ASCII, ']' is '[' + 2, and '}' is '{' + 2
	if c == '{' {
		d.expect = name | closing
		if d.node == root {
			d.objects++
		}
	} else {
		d.expect = value | closing
		if d.depth > 0 {
			l.node = none
		}
	}
	d.depth++
	d.stack[d.depth] = l
	d.node, d.kind = l.node, data
}

// skip reads a byte outside strings, within a value that is nested too deeply.
func (d *document) skip(c byte) {
	switch c {
	case '{', '[':
		d.deep++
	case '}', ']':
		if d.deep--; d.deep == 0 {
			d.endValue()
		}
	case '"':
		d.within = quoted
	}
}

// endValue ends a value.
func (d *document) endValue() {
	d.node, d.kind = d.stack[d.depth].node, data
	if d.depth > 0 {
		d.expect = comma | closing
	} else {
		d.expect, d.whole, d.done = value, true, d.done || d.last
	}
}

// readQuoted continues a string or name at b[i], and returns the index after the piece.
func (d *document) readQuoted(b []byte, i int) int {
	from := i
	for i < len(b) && d.within == quoted {
		if d.escape == 0 {
			i = jsonscan.Plain(b, i)
		}
		switch {
		case i == len(b):
		case d.escape > 0:
			i += d.readEscape(b[i])
		case b[i] == '"':
			d.endQuoted(b[from:i])
			return i + 1
		case b[i] == '\\':
			d.escape = 1
			i++
		default:
			d.fail()
		}
	}
	d.keep(b[from:i])
	return i
}

// readEscape reads the byte c of an escape, after the backslash. It returns 1, or 0 if the escape is invalid.
func (d *document) readEscape(c byte) int {
	switch {
	case d.escape > 1 && (c-'0' <= 9 || c|0x20-'a' <= 5): // a digit of \uXXXX
		d.escape = (d.escape + 1) % len(`\uXXXX`)
	case d.escape == 1 && c == 'u':
		d.escape = len(`\u`)
	case d.escape == 1 && strings.IndexByte(`"\/bfnrt`, c) >= 0:
		d.escape = 0
	default:
		d.fail()
		return 0
	}
	return 1
}

// endQuoted ends a string or name. The parameter rest is its last piece.
func (d *document) endQuoted(rest []byte) {
	d.within = nothing
	switch {
	case d.deep > 0:
	case d.expect&name != 0:
		d.endName(d.take(rest))
	case d.kind == eventType:
		d.last = isLast(d.take(rest))
		d.endValue()
	case d.kind == status:
		d.endStatus(d.take(rest))
		d.endValue()
	default:
		d.keep(rest)
		d.endValue()
	}
}

// endStatus reads the status of a response of OpenAI's Responses API. "queued" means that the response is made in
// the background. "in_progress" means this only for a response at the top of a document: the events of every stream
// start with a response in progress.
func (d *document) endStatus(s []byte) {
	switch string(s) {
	case "queued":
		d.pending = true
	case "in_progress":
		d.pending = d.pending || d.depth == 1
	}
}

// keep stores a piece of a name, a type or a status, and counts the bytes of other strings.
func (d *document) keep(piece []byte) {
	switch {
	case d.expect&name != 0 || d.kind == eventType || d.kind == status:
		d.hold(piece)
	case int(d.kind) < len(d.texts):
		d.texts[d.kind] += int64(len(piece))
	}
}

func (d *document) endName(raw []byte) {
	var buf [maxToken]byte
	if bytes.IndexByte(raw, '\\') >= 0 {
		raw, _ = jsonscan.Unescape(buf[:0], raw)
	}
	d.expect, d.node, d.kind = colon, d.paths.child(d.stack[d.depth].node, raw), kindOf(raw)
	if d.stack[d.depth].echo || d.depth > d.kind.deepest() {
		d.kind = data
	}
}

// isWord is true for the bytes of numbers and literals.
var isWord = func() (in [256]bool) {
	for _, c := range []byte("+-.0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") {
		in[c] = true
	}
	return in
}()

// readWord continues a word at b[i], and returns the index after the piece.
func (d *document) readWord(b []byte, i int) int {
	from := i
	for i < len(b) && isWord[b[i]] {
		i++
	}
	if i == len(b) {
		d.hold(b[from:])
	} else {
		d.endWord(d.take(b[from:i]))
	}
	return i
}

func (d *document) endWord(w []byte) {
	d.within = nothing
	switch {
	case len(w) > 0 && jsonscan.Number(w, 0) == len(w):
		if d.node != none && d.paths.nodes[d.node].leaf {
			d.numbers[d.node] = ceil(w)
		}
	case string(w) == "true":
		d.last, d.pending = d.last || d.kind == isDone, d.pending || d.kind == inBackground
	case string(w) == "false", string(w) == "null":
	case string(w) == "DONE" && d.depth == 1 && d.stack[1].closing == ']': // data: [DONE] ends OpenAI's streams
		d.done, d.within = true, malformed
		return
	default:
		d.fail()
		return
	}
	d.endValue()
}

// hold stores a piece of a token that continues in the next piece.
func (d *document) hold(piece []byte) {
	copy(d.buf[min(d.held, maxToken):], piece)
	d.held += len(piece)
}

// take returns a token, or nil if it is longer than maxToken. The parameter rest is the last piece of the token.
func (d *document) take(rest []byte) []byte {
	if d.held > 0 {
		d.hold(rest)
		rest = d.buf[:min(d.held, maxToken)]
		if d.held > maxToken {
			rest = nil
		}
		d.held = 0
	}
	if len(rest) > maxToken {
		return nil
	}
	return rest
}
