package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// part is a literal or a variable of a format.
type part struct {
	lit string
	variable
}

// tokenize cuts a format into literals and variables. A variable begins with the byte mark, and matches the expression
// syntax. For each match, tokenize calls parse, which returns the parts. "%%" stands for one "%".
func tokenize(format string, mark byte, syntax *regexp.Regexp, parse func(match []string) ([]part, error)) (tokens []part, err error) {
	for format != "" {
		n := strings.IndexByte(format, mark)
		switch {
		case n < 0:
			return append(tokens, part{lit: format}), nil
		case n > 0:
			tokens = append(tokens, part{lit: format[:n]})
		case strings.HasPrefix(format, "%%"):
			tokens, n = append(tokens, part{lit: "%"}), 2
		default:
			m := syntax.FindStringSubmatch(format)
			if m == nil {
				return nil, fmt.Errorf("the variable at %q has no name, or is not closed", format)
			}
			some, err := parse(m)
			if err != nil {
				return nil, err
			}
			tokens, n = append(tokens, some...), len(m[0])
		}
		format = format[n:]
	}
	return tokens, nil
}

// compile returns the format of the tokens. The parameter t has additional properties of the server's logs.
func compile(name string, tokens []part, t *text) (*Format, error) {
	for _, k := range tokens {
		n := len(t.pieces)
		switch {
		case k.lit != "" && n == 0:
			t.prefix += k.lit
		case k.lit != "":
			t.pieces[n-1].lit += k.lit
		default:
			if n > 0 && t.pieces[n-1].lit == "" && (t.pieces[n-1].shape != fixed || k.shape != fixed) {
				return nil, fmt.Errorf("the log format has nothing between %s and %s, so their values cannot be separated", t.pieces[n-1].text, k.text)
			}
			t.pieces = append(t.pieces, piece{variable: k.variable, header: []byte(k.name)})
		}
	}
	if len(t.pieces) > maxPieces {
		return nil, fmt.Errorf("the log format has %d variables, more than the maximum of %d", len(t.pieces), maxPieces)
	}
	f := &Format{Name: name, line: t.line}
	t.choose()
	if !t.tell(&f.Tells) {
		return nil, errors.New("the log format does not contain a time")
	}
	for i := range t.pieces {
		t.pieces[i].between = []byte(t.pieces[i].lit)
		if !t.bound(i) {
			t.doubt = true
		}
	}
	return f, nil
}

// choose keeps only the best of the variables with the same meaning.
func (t *text) choose() {
	best := map[string]*piece{}
	for i := range t.pieces {
		p := &t.pieces[i]
		slot := fmt.Sprint(p.what, p.name)
		switch p.what {
		case valNothing:
			continue
		case valClient, valClientPort:
			slot = "client"
		case valSent, valSentSome:
			slot = "sent"
		case valLogTime, valISOTime, valEpoch:
			slot = "time"
		}
		old := best[slot]
		switch {
		case old == nil:
			best[slot] = p
		case old.rank < p.rank:
			old.what = valNothing
			best[slot] = p
		default:
			p.what = valNothing
		}
	}
	if _, ok := best[fmt.Sprint(valRequest)]; ok { // the request line has the method and the target too
		for i := range t.pieces {
			switch p := &t.pieces[i]; p.what {
			case valMethod, valTarget, valPath, valQuery:
				p.what = valNothing
			}
		}
	}
}

// tell sets the fields of tells for the values that the variables stand for. It reports whether a time is among
// these values.
func (t *text) tell(tells *Tells) (timed bool) {
	var method, target bool
	for i := range t.pieces {
		p := &t.pieces[i]
		method = method || p.what == valMethod
		target = target || p.what == valTarget || p.what == valPath
		switch p.what {
		case valClient, valClientPort:
			tells.Client = true
		case valForwarded:
			tells.Forwarded = true
		case valUser:
			tells.User = true
		case valHost:
			tells.Host = true
		case valRequest, valTarget, valQuery:
			tells.Query = true
		case valReferer:
			tells.Referer = true
		case valUserAgent:
			tells.UserAgent = true
		case valHeader:
			tells.Headers = append(tells.Headers, p.name)
		case valSent, valSentSome:
			tells.Sent = true
		case valDuration:
			t.lasts = true
		case valLogTime, valDate, valDay:
			timed = true
		case valISOTime, valEpoch:
			timed = true
			tells.Fine = tells.Fine || p.rank > 1
		case valFraction:
			tells.Fine = true
		}
	}
	t.request = method && target
	tells.Began = !t.ends || t.lasts
	return timed
}

// bound decides how the end of the value of a piece is found. It reports whether the end is certain: no client can
// make a line that is read differently from how the server wrote it.
func (t *text) bound(i int) bool {
	p := &t.pieces[i]
	if p.shape == fixed {
		return true
	}
	if t.escapes && strings.HasPrefix(p.lit, `"`) {
		p.quoted = true // a quote in the value is escaped, whatever the value is
		return true
	}
	if i == len(t.pieces)-1 {
		return true
	}
	next := &t.pieces[i+1]
	switch p.shape {
	case number:
		return !strings.ContainsRune("0123456789.,-+", rune(p.lit[0]))
	case word, list:
		if p.lit == ":" && next.shape == port && next.lit != "" {
			p.ported = next.lit[0]
			return true
		}
		return !p.wild && strings.ContainsRune(" \t\"[]", rune(p.lit[0]))
	case free:
		if next.shape == fixed || next.lit != "" && (next.shape == word && strings.Contains(p.lit, " ") || next.shape == number) {
			p.next = next
		}
		// Quotes in values are escaped, so a quote in the literal cannot be part of the value. If the next value must
		// fit, too, the same is true for a quote in the next literal.
		return t.escapes && (strings.Contains(p.lit, `"`) || p.next != nil && strings.Contains(next.lit, `"`))
	}
	return true // the end of a port
}
