package accesslog

import (
	"fmt"
	"strings"
)

// What Envoy and Istio write unless they are told otherwise.
const (
	envoyFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ` +
		`%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" "%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%"`
	istioFormat = `[%START_TIME%] "%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%" %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ` +
		`"%UPSTREAM_TRANSPORT_FAILURE_REASON%" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% "%REQ(X-FORWARDED-FOR)%" "%REQ(USER-AGENT)%" "%REQ(X-REQUEST-ID)%" ` +
		`"%REQ(:AUTHORITY)%" "%UPSTREAM_HOST%" %UPSTREAM_CLUSTER% %UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%`
)

func envoyDefault(o Options) *Format { return must(envoyTokens("envoy", envoyFormat, o)) }
func istio(o Options) *Format        { return must(envoyTokens("istio", istioFormat, o)) }

// envoy compiles a format string of Envoy.
func envoy(spec string, o Options) (*Format, error) {
	f, err := envoyTokens(spec, spec, o)
	if err != nil {
		return nil, fmt.Errorf("format of Envoy: %w", err)
	}
	return f, nil
}

// ofEnvoy reports whether a format has commands of Envoy, which are words between two "%".
func ofEnvoy(spec string) bool {
	for {
		_, after, ok := strings.Cut(spec, "%")
		if !ok {
			return false
		}
		if len(after)-len(strings.TrimLeft(after, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_")) > 2 {
			return true
		}
		spec = after
	}
}

func envoyTokens(name, spec string, o Options) (*Format, error) {
	var tokens []part
	for rest := spec; rest != ""; {
		i := strings.IndexByte(rest, '%')
		if i != 0 {
			if i < 0 {
				i = len(rest)
			}
			tokens = append(tokens, part{lit: rest[:i]})
			rest = rest[i:]
			continue
		}
		if strings.HasPrefix(rest, "%%") {
			tokens = append(tokens, part{lit: "%"})
			rest = rest[2:]
			continue
		}
		// %COMMAND(argument):length%; the argument of START_TIME has "%" in it.
		end := strings.IndexByte(rest[1:], '%') + 1
		command, arg := rest[1:max(end, 1)], ""
		if open := strings.IndexByte(rest, '('); open > 0 && (end <= 0 || open < end) {
			closing := strings.IndexByte(rest[open:], ')')
			if closing < 0 {
				return nil, fmt.Errorf("the ( of %q is not closed", rest)
			}
			command, arg = rest[1:open], rest[open+1:open+closing]
			if end = strings.IndexByte(rest[open+closing:], '%'); end >= 0 {
				end += open + closing
			}
		}
		if end <= 0 {
			return nil, fmt.Errorf("the %% of %q is not closed", rest)
		}
		whole := rest[:end+1]
		rest = rest[end+1:]
		if command == "START_TIME" && arg != "" {
			more, err := strftime(arg, whole)
			if err != nil {
				return nil, err
			}
			tokens = append(tokens, more...)
			continue
		}
		v := envoyVariable(command, arg)
		v.text = whole
		tokens = append(tokens, part{variable: v})
	}
	return compile(name, tokens, &text{zone: o.Zone})
}

func envoyVariable(command, arg string) variable {
	switch command {
	case "START_TIME":
		return variable{what: valISOTime, shape: word, rank: 2}
	case "REQ":
		return envoyHeader(arg)
	case "PROTOCOL", "RESPONSE_FLAGS", "UPSTREAM_HOST", "UPSTREAM_CLUSTER", "UPSTREAM_LOCAL_ADDRESS", "DOWNSTREAM_LOCAL_ADDRESS":
		return variable{shape: word}
	case "RESPONSE_CODE":
		return variable{what: valStatus, shape: number}
	case "BYTES_SENT":
		return variable{what: valSent, shape: number}
	case "DURATION":
		return variable{what: valDuration, shape: number, scale: 1e3}
	case "BYTES_RECEIVED", "REQUEST_DURATION", "RESPONSE_DURATION":
		return variable{shape: number}
	case "DOWNSTREAM_REMOTE_ADDRESS":
		return variable{what: valClientPort, shape: word}
	case "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":
		return variable{what: valClient, shape: word, rank: 1}
	case "DOWNSTREAM_DIRECT_REMOTE_ADDRESS", "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT", "DOWNSTREAM_REMOTE_PORT":
		return variable{shape: word}
	case "STREAM_ID":
		return variable{what: valID, shape: word}
	}
	return variable{}
}

// envoyHeader is REQ(NAME?OTHER), of the pseudo-fields too.
func envoyHeader(arg string) variable {
	name, other, _ := strings.Cut(strings.ToUpper(arg), "?")
	switch {
	case name == ":METHOD":
		return variable{what: valMethod, shape: word}
	case name == ":PATH" || other == ":PATH":
		return variable{what: valTarget}
	case name == ":AUTHORITY":
		return variable{what: valHost, rank: 1}
	case name == "X-REQUEST-ID":
		return variable{what: valID}
	case strings.HasPrefix(name, ":"):
		return variable{shape: word}
	}
	return headerVariable(name)
}
