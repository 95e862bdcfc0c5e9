package accesslog

import (
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strings"
)

// The named formats of Apache's configuration. Times in combined are taken as the ends of requests, because nginx
// writes this format too, with end times. Times in the others are starts.
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

// named compiles one of these formats under its name.
func named(name, spec string, o Options) *Format {
	return must(apacheFormat(name, spec, &text{escapes: true, zone: o.Zone}))
}

// must panics if a format does not compile. It is for formats that are known to compile.
func must[F any](f F, err error) F {
	if err != nil {
		panic(err)
	}
	return f
}

// apache compiles a LogFormat. The argument is the text of the format, in which quotes may be escaped with
// backslashes, or the whole directive from a configuration.
func apache(spec string, o Options) (*Format, error) {
	format := unescaped.Replace(spec)
	if m := logFormat.FindString(spec); m != "" {
		var err error
		if format, _, err = quotedText(spec[len(m):]); err != nil {
			return nil, fmt.Errorf("LogFormat of Apache: %w", err)
		}
	}
	f, err := apacheFormat(spec, format, &text{escapes: true, zone: o.Zone})
	if err != nil {
		return nil, fmt.Errorf("LogFormat of Apache: %w", err)
	}
	return f, nil
}

var (
	logFormat = regexp.MustCompile(`(?i)^\s*LogFormat\s*`)
	// unescaped replaces the backslash escapes in the configurations of nginx and Apache.
	unescaped = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\\`, `\`, `\t`, "\t", `\r`, "\r", `\n`, "\n")
)

// quotedText returns the quoted text that s begins with, and the rest after the closing quote.
func quotedText(s string) (text, rest string, err error) {
	if s == "" || s[0] != '"' && s[0] != '\'' {
		return "", "", fmt.Errorf("%.60q is not in quotes", s)
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case s[0]:
			return unescaped.Replace(s[1:i]), s[i+1:], nil
		}
	}
	return "", "", errors.New("a quote is not closed")
}

// apacheSyntax is the syntax of a variable. %400,501{User-Agent}i and %!200>s are "-" except for some statuses.
// %{Name}^ti is a trailer. Path and query usually stand together, so they are matched as one variable.
var apacheSyntax = regexp.MustCompile(`^%(?:(U%q)|([!\d,<>]*)(?:\{([^}]*)\})?(?:\^.)?([a-zA-Z]))`)

// apacheFormat compiles the text of a LogFormat.
func apacheFormat(name, format string, t *text) (*Format, error) {
	tokens, err := tokenize(format, '%', apacheSyntax, func(m []string) ([]part, error) {
		whole, arg, letter := m[0], m[3], m[4]
		switch {
		case m[1] != "":
			return []part{{variable: variable{what: valTarget, text: whole}}}, nil
		case letter == "t" && arg == "":
			stamp := variable{what: valLogTime, shape: fixed, width: 26, text: whole}
			return []part{{lit: "["}, {variable: stamp}, {lit: "]"}}, nil
		case letter == "t":
			if after, ok := strings.CutPrefix(arg, "end:"); ok {
				arg, t.ends = after, true
			}
			return strftime(strings.TrimPrefix(arg, "begin:"), whole)
		case !strings.Contains("aAbBCDefhHiIkKlLmnoOpPqrRsSTuUvVX", letter) && (arg == "" || letter != "x" && letter != "c"): // mod_ssl has x and c with an argument
			return nil, fmt.Errorf("unknown variable %s (for a log of HAProxy, use the format haproxy)", whole)
		}
		v := ofApache(letter, arg, strings.Contains(m[2], ">")) // ">": the status after an internal redirect
		v.text = whole
		return []part{{variable: v}}, nil
	})
	if err != nil {
		return nil, err
	}
	return compile(name, tokens, t)
}

// apacheVariables has the variables by their letter, some with an argument.
var apacheVariables = map[string]variable{
	"h": {what: valClient, shape: word}, "a": {what: valClient, shape: word, rank: 1},
	"a{c}": {shape: word}, // the peer of the connection, which may be a proxy
	"l":    {shape: word}, "L": {shape: word}, "H": {shape: word}, "A": {shape: word}, "X": {shape: word},
	"v": {what: valHost, shape: word}, "V": {what: valHost, shape: word},
	"u": {what: valUser}, "r": {what: valRequest}, "m": {what: valMethod, shape: word}, "U": {what: valPath}, "q": {what: valQuery},
	"s": {what: valStatus, shape: number},
	"b": {what: valSentSome, shape: number, rank: 1}, "B": {what: valSentSome, shape: number, rank: 1}, "O": {what: valSent, shape: number},
	"I": {shape: number}, "S": {shape: number}, "k": {shape: number}, "P": {shape: number}, "p": {shape: port},
	"D": {what: valDuration, shape: number, scale: 1, rank: 2}, "T{us}": {what: valDuration, shape: number, scale: 1, rank: 2},
	"T{ms}": {what: valDuration, shape: number, scale: 1e3, rank: 1}, "T": {what: valDuration, shape: number, scale: 1e6},
}

// ofApache returns the variable of a letter with an argument. For a status, the parameter final is true if it is the
// status after internal redirects.
func ofApache(letter, arg string, final bool) variable {
	switch {
	case letter == "i":
		return headerVariable(arg)
	case (letter == "e" || letter == "n") && strings.EqualFold(arg, "UNIQUE_ID"):
		return variable{what: valID, shape: word}
	}
	v, ok := apacheVariables[letter+"{"+arg+"}"]
	if !ok {
		v = apacheVariables[letter]
	}
	if final && letter == "s" {
		v.rank = 1
	}
	return v
}

// headerVariable returns the variable for a field of the request's header.
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

// strftimeDigits has the conversions with a fixed width.
var strftimeDigits = map[string]struct {
	what  what
	width int
}{
	"Y": {valYear, 4}, "m": {valMonth, 2}, "b": {valMonthName, 3}, "h": {valMonthName, 3}, "d": {valDay, 2}, "e": {valDay, 2},
	"H": {valHour, 2}, "M": {valMinute, 2}, "S": {valSecond, 2}, "a": {valNothing, 3}, "z": {valZone, 5}, "f": {valFraction, 9},
}

var (
	// epochs has the forms of a time since the Unix epoch, with their units.
	epochs = map[string]variable{
		"sec": {scale: 1e6}, "msec": {scale: 1e3, rank: 2}, "usec": {scale: 1, rank: 2},
	}
	// timesOfDay expands conversions that stand for several others, and the fractions of Apache.
	timesOfDay = strings.NewReplacer("%T", "%H:%M:%S", "%F", "%Y-%m-%d", "%R", "%H:%M", "%D", "%m/%d/%y", "msec_frac", "%3f", "usec_frac", "%6f")
	// conversion matches a conversion of strftime or of Envoy: %E3S is seconds with a fraction; %E3f and %3f are
	// the fraction alone.
	conversion = regexp.MustCompile(`^%(?:(E?)([1-9])([fS])|(.))`)
)

// strftime returns the tokens of a format for the C function strftime, with the fractions that Apache and Envoy
// add.
func strftime(format, whole string) ([]part, error) {
	digits := func(w what, width int) part {
		return part{variable: variable{what: w, shape: fixed, width: width, text: whole}}
	}
	epoch := func(v variable) []part {
		v.what, v.shape, v.text = valEpoch, number, whole
		return []part{{variable: v}}
	}
	if v, ok := epochs[format]; ok {
		return epoch(v), nil
	}
	return tokenize(timesOfDay.Replace(format), '%', conversion, func(m []string) ([]part, error) {
		known := strftimeDigits[m[4]]
		switch {
		case m[1]+m[3] == "ES":
			return []part{digits(valSecond, 2), {lit: "."}, digits(valFraction, int(m[2][0]-'0'))}, nil
		case m[3] == "f":
			return []part{digits(valFraction, int(m[2][0]-'0'))}, nil
		case m[4] == "s":
			return epoch(epochs["sec"]), nil
		case known.width > 0:
			return []part{digits(known.what, known.width)}, nil
		}
		return nil, fmt.Errorf("the time format in %s has the unknown conversion %s", whole, m[0])
	})
}
