package accesslog

import (
	"fmt"
	"net/textproto"
	"strings"
)

// The formats that Apache's configuration has by name. As combined is nginx's too, whose times are the
// requests' ends, its times are taken for ends, and for begins in the others.
const (
	commonFormat        = `%h %l %u %t "%r" %>s %b`
	combinedFormat      = commonFormat + ` "%{Referer}i" "%{User-Agent}i"`
	combinedIOFormat    = combinedFormat + ` %I %O`
	vhostCommonFormat   = `%v ` + commonFormat
	vhostCombinedFormat = `%v:%p %h %l %u %t "%r" %>s %O "%{Referer}i" "%{User-Agent}i"`
	// traefikFormat escapes nothing.
	traefikFormat = `%h - %u %t "%r" %>s %b "%{Referer}i" "%{User-Agent}i" %k "%{router}n" "%{service}n" %{ms}Tms`
)

func combined(o Options) *Format {
	return must(apacheFormat("combined", combinedFormat, &text{escapes: true, ends: true, zone: o.Zone}))
}
func common(o Options) *Format        { return named("common", commonFormat, o) }
func combinedIO(o Options) *Format    { return named("combinedio", combinedIOFormat, o) }
func vhostCommon(o Options) *Format   { return named("vhost_common", vhostCommonFormat, o) }
func vhostCombined(o Options) *Format { return named("vhost_combined", vhostCombinedFormat, o) }

func traefik(o Options) *Format {
	return must(apacheFormat("traefik", traefikFormat, &text{zone: o.Zone}))
}

// named compiles one of the formats here under its name.
func named(name, spec string, o Options) *Format {
	return must(apacheFormat(name, spec, &text{escapes: true, zone: o.Zone}))
}

// must is for formats that are known to compile.
func must(f *Format, err error) *Format {
	if err != nil {
		panic(err)
	}
	return f
}

// apache compiles a LogFormat: its text, or the directive as it stands in a configuration.
func apache(spec string, o Options) (*Format, error) {
	format := strings.TrimSpace(spec)
	if len(format) > 9 && strings.EqualFold(format[:9], "LogFormat") {
		format = strings.TrimSpace(format[9:])
		if format == "" || format[0] != '"' && format[0] != '\'' {
			return nil, fmt.Errorf("LogFormat of Apache: the format is not in quotes")
		}
		quote := format[0]
		for i := 1; ; i++ {
			if i >= len(format) {
				return nil, fmt.Errorf("LogFormat of Apache: a quote is not closed")
			}
			if format[i] == '\\' {
				i++
			} else if format[i] == quote {
				format = format[1:i]
				break
			}
		}
	}
	f, err := apacheFormat(spec, format, &text{escapes: true, zone: o.Zone})
	if err != nil {
		return nil, fmt.Errorf("LogFormat of Apache: %w", err)
	}
	return f, nil
}

// apacheFormat compiles the text of a LogFormat, in which quotes may stand behind backslashes.
func apacheFormat(name, format string, t *text) (*Format, error) {
	var tokens []part
	lit := func(s string) { tokens = append(tokens, part{lit: s}) }
	for rest := format; rest != ""; {
		i := strings.IndexAny(rest, `%\`)
		if i != 0 {
			if i < 0 {
				i = len(rest)
			}
			lit(rest[:i])
			rest = rest[i:]
			continue
		}
		if rest[0] == '\\' {
			if len(rest) == 1 {
				lit(`\`)
				break
			}
			switch rest[1] {
			case 't':
				lit("\t")
			case 'n':
				lit("\n")
			case '"', '\\', '\'':
				lit(rest[1:2])
			default:
				lit(rest[:2])
			}
			rest = rest[2:]
			continue
		}
		if strings.HasPrefix(rest, "%%") {
			lit("%")
			rest = rest[2:]
			continue
		}
		// %400,501{User-Agent}i or %!200>s: for some statuses only, else "-".
		n := 1 + len(rest[1:]) - len(strings.TrimLeft(rest[1:], "!0123456789,<>"))
		final := strings.Contains(rest[:n], ">") // after an internal redirect
		arg := ""
		if n < len(rest) && rest[n] == '{' {
			end := strings.IndexByte(rest[n:], '}')
			if end < 0 {
				return nil, fmt.Errorf("the { of %q is not closed", rest)
			}
			arg = rest[n+1 : n+end]
			n += end + 1
		}
		if n < len(rest) && rest[n] == '^' { // %{Name}^ti, a trailer
			n += 2
		}
		if n >= len(rest) {
			return nil, fmt.Errorf("%q ends within a variable", rest)
		}
		letter := rest[n]
		whole := rest[:n+1]
		rest = rest[n+1:]
		switch {
		case letter == 't' && arg == "":
			lit("[")
			tokens = append(tokens, part{variable: variable{what: valLogTime, shape: fixed, width: 26, text: whole}})
			lit("]")
			continue
		case letter == 't':
			if after, ok := strings.CutPrefix(arg, "begin:"); ok {
				arg = after
			} else if after, ok := strings.CutPrefix(arg, "end:"); ok {
				arg, t.ends = after, true
			}
			more, err := strftime(arg, whole)
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, more...)
			continue
		case letter == 'U' && strings.HasPrefix(rest, "%q"):
			rest = rest[2:]
			tokens = append(tokens, part{variable: variable{what: valTarget, text: "%U%q"}})
			continue
		}
		if strings.IndexByte("aAbBCDefhHiIkKlLmnoOpPqrRsSTuUvVX", letter) < 0 && (arg == "" || letter != 'x' && letter != 'c') { // of mod_ssl
			return nil, fmt.Errorf("%s is not known (of HAProxy there is only the format haproxy)", whole)
		}
		v := ofApache(letter, arg, final)
		v.text = whole
		tokens = append(tokens, part{variable: v})
	}
	return compile(name, tokens, t)
}

// apacheVariables are those of a letter, some of them with an argument.
var apacheVariables = map[string]variable{
	"h": {what: valClient, shape: word}, "a": {what: valClient, shape: word, rank: 1},
	"a{c}": {shape: word}, // a proxy in between
	"l":    {shape: word}, "L": {shape: word}, "H": {shape: word}, "A": {shape: word}, "X": {shape: word},
	"v": {what: valHost, shape: word}, "V": {what: valHost, shape: word},
	"u": {what: valUser}, "r": {what: valRequest}, "m": {what: valMethod, shape: word}, "U": {what: valPath}, "q": {what: valQuery},
	"s": {what: valStatus, shape: number},
	"b": {what: valSentSome, shape: number, rank: 1}, "B": {what: valSentSome, shape: number, rank: 1}, "O": {what: valSent, shape: number},
	"I": {shape: number}, "S": {shape: number}, "k": {shape: number}, "P": {shape: number}, "p": {shape: port},
	"D": {what: valDuration, shape: number, scale: 1, rank: 2}, "T{us}": {what: valDuration, shape: number, scale: 1, rank: 2},
	"T{ms}": {what: valDuration, shape: number, scale: 1e3, rank: 1}, "T": {what: valDuration, shape: number, scale: 1e6},
}

// ofApache returns the variable of a letter; final is that of a status after internal redirects.
func ofApache(letter byte, arg string, final bool) variable {
	switch {
	case letter == 'i':
		return headerVariable(arg)
	case (letter == 'e' || letter == 'n') && strings.EqualFold(arg, "UNIQUE_ID"):
		return variable{what: valID, shape: word}
	}
	v, ok := apacheVariables[string(letter)+"{"+arg+"}"]
	if !ok {
		v = apacheVariables[string(letter)]
	}
	if final && letter == 's' {
		v.rank = 1
	}
	return v
}

// headerVariable is a field of the request's header.
func headerVariable(name string) variable {
	switch name = textproto.CanonicalMIMEHeaderKey(name); name {
	case "Referer":
		return variable{what: valReferer}
	case "User-Agent":
		return variable{what: valUserAgent}
	case "X-Forwarded-For":
		return variable{what: valForwarded, shape: list, wild: true}
	case "Host":
		return variable{what: valHost, rank: 1}
	}
	return variable{what: valHeader, name: name}
}

// strftimeDigits are the conversions that have a width.
var strftimeDigits = map[byte]struct {
	what  what
	width int
}{
	'Y': {valYear, 4}, 'm': {valMonth, 2}, 'b': {valMonthName, 3}, 'h': {valMonthName, 3}, 'd': {valDay, 2}, 'e': {valDay, 2},
	'H': {valHour, 2}, 'M': {valMinute, 2}, 'S': {valSecond, 2}, 'a': {valNothing, 3}, 'z': {valZone, 5}, 'f': {valFraction, 9},
}

// strftime returns the tokens of a format of the C function, with the fractions that Apache and Envoy
// add to it.
func strftime(format, whole string) ([]part, error) {
	digits := func(w what, width int) variable { return variable{what: w, shape: fixed, width: width, text: whole} }
	number := func(scale int64) variable {
		return variable{what: valEpoch, shape: number, scale: scale, rank: 2, text: whole}
	}
	switch format {
	case "sec":
		v := number(1e6)
		v.rank = 0
		return []part{{variable: v}}, nil
	case "msec":
		return []part{{variable: number(1e3)}}, nil
	case "usec":
		return []part{{variable: number(1)}}, nil
	case "msec_frac":
		return []part{{variable: digits(valFraction, 3)}}, nil
	case "usec_frac":
		return []part{{variable: digits(valFraction, 6)}}, nil
	}
	format = strings.NewReplacer("%T", "%H:%M:%S", "%F", "%Y-%m-%d", "%R", "%H:%M", "%D", "%m/%d/%y").Replace(format)
	var tokens []part
	for format != "" {
		if lit := upTo(format, '%'); lit != "" {
			tokens = append(tokens, part{lit: lit})
			format = format[len(lit):]
			continue
		}
		if len(format) < 2 {
			return nil, fmt.Errorf("the time's format in %s ends with a %%", whole)
		}
		known := strftimeDigits[format[1]]
		v := digits(known.what, known.width)
		n := 2
		switch c := format[1]; c {
		case 's':
			v = number(1e6)
			v.rank = 0
		case 'E': // %E3S are seconds with a fraction, %E3f is the fraction
			if len(format) < 4 || format[2]-'1' > 8 || format[3] != 'S' && format[3] != 'f' {
				return nil, fmt.Errorf("the time's format in %s has %q, which is not known", whole, format)
			}
			if format[3] == 'S' {
				tokens = append(tokens, part{variable: digits(valSecond, 2)}, part{lit: "."})
			}
			v = digits(valFraction, int(format[2]-'0'))
			n = 4
		case '1', '2', '3', '4', '5', '6', '7', '8', '9': // %3f
			if len(format) < 3 || format[2] != 'f' {
				return nil, fmt.Errorf("the time's format in %s has %q, which is not known", whole, format)
			}
			v = digits(valFraction, int(c-'0'))
			n = 3
		case '%':
			tokens = append(tokens, part{lit: "%"})
			format = format[2:]
			continue
		default:
			if known.width == 0 {
				return nil, fmt.Errorf("the time's format in %s has %%%c, which is not known", whole, c)
			}
		}
		tokens = append(tokens, part{variable: v})
		format = format[n:]
	}
	return tokens, nil
}
