package accesslog

import (
	"fmt"
	"regexp"
	"strings"
)

// The default formats of Envoy and Istio.
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

var (
	// envoyCommand matches a command, which no other server has in its formats.
	envoyCommand = regexp.MustCompile(`%[A-Z_]{3}`)
	// envoySyntax matches %COMMAND(argument):length%. The argument of START_TIME contains "%".
	envoySyntax = regexp.MustCompile(`^%([^%(]+)(?:\(([^)]*)\)[^%]*)?%`)
)

func envoyTokens(name, spec string, o Options) (*Format, error) {
	tokens, err := tokenize(spec, '%', envoySyntax, func(m []string) ([]part, error) {
		whole, command, arg := m[0], m[1], m[2]
		if command == "START_TIME" && arg != "" {
			return strftime(arg, whole)
		}
		v := envoyVariable(command, arg)
		v.text = whole
		return []part{{variable: v}}, nil
	})
	if err != nil {
		return nil, err
	}
	return compile(name, tokens, &text{zone: o.Zone})
}

// envoyVariables has the variables of commands without an argument.
var envoyVariables = map[string]variable{
	"START_TIME": {what: valISOTime, shape: word, rank: 2}, "RESPONSE_CODE": {what: valStatus, shape: number},
	"BYTES_SENT": {what: valSent, shape: number}, "DURATION": {what: valDuration, shape: number, scale: 1e3},
	"DOWNSTREAM_REMOTE_ADDRESS": {what: valClientPort, shape: word}, "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT": {what: valClient, shape: word, rank: 1},
	"STREAM_ID": {what: valID, shape: word},

	"BYTES_RECEIVED": {shape: number}, "REQUEST_DURATION": {shape: number}, "RESPONSE_DURATION": {shape: number},
	"PROTOCOL": {shape: word}, "RESPONSE_FLAGS": {shape: word}, "UPSTREAM_HOST": {shape: word}, "UPSTREAM_CLUSTER": {shape: word},
	"UPSTREAM_LOCAL_ADDRESS": {shape: word}, "DOWNSTREAM_LOCAL_ADDRESS": {shape: word}, "DOWNSTREAM_DIRECT_REMOTE_ADDRESS": {shape: word},
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": {shape: word}, "DOWNSTREAM_REMOTE_PORT": {shape: word},
}

func envoyVariable(command, arg string) variable {
	if command == "REQ" {
		return envoyHeader(arg)
	}
	return envoyVariables[command]
}

// envoyHeader returns the variable for REQ(NAME?OTHER), including the pseudo-fields.
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
