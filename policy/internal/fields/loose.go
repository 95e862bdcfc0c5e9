package fields

import (
	"strings"
	"unicode/utf8"
)

// apiFields are fields of requests that APIs for models and tools take as JSON: those of OpenAI, Anthropic, Gemini and
// Ollama, and of JSON-RPC. Prompts are full of code and addresses with such names. So where the Content-Type is
// application/json, these fields are those of the object alone: no pair within a text stands for them, nor does a
// member of another object. A server with forms counts by other fields, such as names of accounts.
var apiFields = map[string]bool{
	"jsonrpc": true, "method": true, "params": true,
	"model": true, "stream": true, "stream_options": true, "service_tier": true, "reasoning": true, "tool_choice": true,
	"max_tokens": true, "max_completion_tokens": true, "max_output_tokens": true,
	"generationConfig": true, "options": true,
}

func isAPIField(name string) bool {
	outer, _, _ := strings.Cut(name, "[")
	return apiFields[outer]
}

// addLoose adds the pairs of m.loose whose names are like name. What is certainly no name of a form is passed over.
// It takes time in proportion to the text.
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
		first := start == 0 // the text may begin with a pair
		from = equals + 1
		if amp >= 0 || first {
			m.addLoosePair(f, name, before[amp+1:], s[from:], "&")
		}
		// Some servers take ";" for "&".
		if last := max(amp, semicolon); last >= 0 || first {
			m.addLoosePair(f, name, before[last+1:], s[from:], "&;")
		}
	}
}

// addLoosePair adds a pair of which the name and what begins with the value are there, if it is like name.
func (m *Members) addLoosePair(f *finding, name, of, rest, separators string) {
	if len(of) > maxFieldName {
		return
	}
	start := len(m.names)
	of, ok := m.unescapedName(of)
	if !utf8.ValidString(of) || strings.ContainsRune(of, utf8.RuneError) {
		// It may be the inside of a file: what is no text in it is not for forms.
		of = strings.ReplaceAll(strings.ToValidUTF8(of, ""), "\uFFFD", "")
	}
	like := different
	charset := false
	if ok {
		like, charset = fieldLikeness(of, name), strings.EqualFold(of, "_charset_")
	}
	m.names = m.names[:start]
	if like == different && !charset {
		return
	}
	value := rest
	if end := strings.IndexAny(rest, separators); end >= 0 {
		value = rest[:end]
	}
	if charset && namesCharset("_charset_", value) {
		f.state = Garbled
		return
	}
	if like != different {
		f.add(Member{Text: value, kind: formMember}, like)
	}
}
