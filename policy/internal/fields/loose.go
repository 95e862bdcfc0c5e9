package fields

import (
	"strings"
	"unicode/utf8"

	"github.com/sluicehq/sluice/policy/internal/fold"
)

// apiFields has fields of JSON requests to APIs for models and tools: of OpenAI, Anthropic, Gemini and Ollama, and
// of JSON-RPC. Prompts are full of code and addresses with such names. So if the Content-Type is application/json,
// these fields are read only from the members of the object itself, and not from pairs within a text or from
// members of inner objects. Limits for servers that read forms use other fields, such as names of accounts.
var apiFields = map[string]bool{
	"jsonrpc": true, "method": true, "params": true,
	"model": true, "stream": true, "stream_options": true, "service_tier": true, "reasoning": true, "tool_choice": true,
	"max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true,
	"generationConfig": true, "generation_config": true, "options": true,
}

func isAPIField(name string) bool {
	outer, _, _ := strings.Cut(name, "[")
	return apiFields[outer]
}

// addLoose adds the pairs of m.loose with names like the requested name. It skips text that cannot be the name of a
// field, and takes time proportional to the length of m.loose.
func (m *Members) addLoose(f *finding, name string) {
	s := m.loose
	for from := 0; f.state != Garbled; {
		i := strings.IndexByte(s[from:], '=')
		if i < 0 {
			return
		}
		equals, start := from+i, max(from, from+i-maxFieldName-1)
		before := s[start:equals]
		amp, semicolon := strings.LastIndexByte(before, '&'), strings.LastIndexByte(before, ';')
		first := start == 0 // the text may start with a pair
		from = equals + 1
		if amp >= 0 || first {
			m.addLoosePair(f, name, before[amp+1:], s[from:], "&")
		}
		// Some servers read ";" as "&".
		if semicolon > amp {
			m.addLoosePair(f, name, before[semicolon+1:], s[from:], "&;")
		}
	}
}

// maxLooks is the maximum number of names that are compared closely. Each comparison takes about 100 ns. Every 16 bytes
// of a name count as a further name.
const maxLooks = 20_000

// addLoosePair adds a pair if its key is like the given name. The parameter rest is the text from the value of the pair
// on.
func (m *Members) addLoosePair(f *finding, name, key, rest, separators string) {
	if len(key) > maxFieldName || !mayBeLike(key, name[0]) {
		return
	}
	if f.looks += 1 + len(key)/16; f.looks > maxLooks {
		f.state = Garbled
		return
	}
	start := len(m.names)
	key, ok := m.unescapedName(key)
	// The pair may be inside a file. Bytes that are not text do not belong to a form.
	key = strings.ReplaceAll(strings.ToValidUTF8(key, ""), "\uFFFD", "")
	like, charset := fieldLikeness(key, name), strings.EqualFold(key, "_charset_")
	m.names = m.names[:start]
	if !ok || like == different && !charset {
		return
	}
	value := rest
	if end := strings.IndexAny(rest, separators); end >= 0 {
		value = rest[:end]
	}
	if charset && namesCharset("_charset_", value) {
		f.state = Garbled
	}
	if like != different {
		f.add(Member{Text: value, kind: formMember}, like)
		if i := strings.IndexByte(value, ';'); i >= 0 {
			f.add(Member{Text: value[:i], kind: formMember}, like) // some servers end the value at the semicolon
		}
	}
}

// mayBeLike is a fast test whether s may be like a name that begins with the character first, or may be
// "_charset_".
func mayBeLike(s string, first byte) bool {
	if soft[first] || first >= utf8.RuneSelf {
		return true
	}
	first = fold.Lower(first)
	for i := range len(s) {
		if c := s[i]; c == '%' || c >= utf8.RuneSelf || fold.Lower(c) == first {
			return true
		}
	}
	return strings.EqualFold(s, "_charset_")
}
