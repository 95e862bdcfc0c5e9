package telemetry

import "strings"

// traceID returns the trace ID in the values of a traceparent field, or "" if they are invalid by W3C Trace
// Context, level 2. There must be one value: a version, the IDs of the trace and the parent, and flags, in
// lower-case hexadecimal digits. In later versions, more fields may follow.
func traceID(values []string) string {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-00")
	if len(values) != 1 || len(values[0]) < length {
		return ""
	}
	v := values[0]
	version, trace, parent, flags := v[:2], v[3:35], v[36:52], v[53:55]
	switch {
	case v[2] != '-' || v[35] != '-' || v[52] != '-',
		!lowerHex(version) || !lowerHex(trace) || !lowerHex(parent) || !lowerHex(flags),
		version == "ff" || zeros(trace) || zeros(parent),
		version == "00" && len(v) > length,
		len(v) > length && v[length] != '-':
		return ""
	}
	return strings.Clone(trace)
}

func lowerHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }
func zeros(s string) bool    { return strings.Trim(s, "0") == "" }
