package accesslog

import (
	"errors"
	"fmt"
	"net/textproto"
	"strings"
)

// ofNginx are the variables of nginx that tell something, and others whose values have no spaces. Those
// that are not here may hold anything.
var ofNginx = map[string]variable{
	"remote_addr":          {what: valClient, shape: word},
	"remote_user":          {what: valUser},
	"request":              {what: valRequest},
	"request_method":       {what: valMethod, shape: word},
	"request_uri":          {what: valTarget, rank: 1},
	"uri":                  {what: valPath},
	"document_uri":         {what: valPath},
	"args":                 {what: valQuery},
	"query_string":         {what: valQuery},
	"server_protocol":      {shape: word},
	"host":                 {what: valHost, shape: word, rank: 1},
	"http_host":            {what: valHost},
	"status":               {what: valStatus, shape: number},
	"body_bytes_sent":      {what: valSent, shape: number, rank: 1},
	"bytes_sent":           {what: valSent, shape: number},
	"request_time":         {what: valDuration, shape: number, scale: 1e6},
	"http_referer":         {what: valReferer},
	"http_user_agent":      {what: valUserAgent},
	"http_x_forwarded_for": {what: valForwarded, shape: list, wild: true},
	"request_id":           {what: valID, shape: word},
	"req_id":               {what: valID, shape: word}, // of ingress-nginx
	"time_local":           {what: valLogTime, shape: fixed, width: 26},
	"time_iso8601":         {what: valISOTime, shape: fixed, width: 25, rank: 1},
	"msec":                 {what: valEpoch, shape: number, scale: 1e6, rank: 2},
	"remote_port":          {shape: port},
	"server_port":          {shape: port},
	// What follows a "$" in request_uri.
	"is_args": {shape: word},
}

// tame are variables of nginx whose values have no spaces and tell nothing.
const tame = " binary_remote_addr body_bytes_received bytes_received connection connection_requests connection_time connections_active content_length" +
	" gzip_ratio hostname https limit_conn_status limit_rate limit_req_status msec nginx_version pid pipe proxy_alternative_upstream_name proxy_host proxy_port" +
	" proxy_protocol_addr proxy_protocol_port proxy_upstream_name realip_remote_addr realip_remote_port request_completion request_length scheme server_addr" +
	" ssl_cipher ssl_early_data ssl_protocol ssl_session_id ssl_session_reused tcpinfo_rtt tcpinfo_rttvar time_iso8601 upstream_cache_status "

// nginx compiles a log_format: its text alone, with "escape=json " or another before it where the
// directive has that, or the whole directive as it stands in a configuration.
func nginx(spec string, o Options) (*Format, error) {
	format, escape, err := nginxDirective(spec)
	if err != nil {
		return nil, err
	}
	t := &text{ends: true, zone: o.Zone}
	switch escape {
	case "", "default", "json":
		t.escapes = true
	case "none":
	default:
		return nil, fmt.Errorf("log_format of nginx: escape=%s is none of default, json and none", escape)
	}
	var tokens []part
	for format != "" {
		if lit := upTo(format, '$'); lit != "" {
			tokens = append(tokens, part{lit: lit})
			format = format[len(lit):]
			continue
		}
		name, rest := nginxName(format[1:])
		if name == "" {
			return nil, fmt.Errorf("log_format of nginx: there is no name after the $ of %q", format)
		}
		format = rest
		// Path and query stand together more often than not.
		for name == "uri" && strings.HasPrefix(format, "$is_args$args") || name == "is_args" && strings.HasPrefix(format, "$args") {
			if name == "uri" {
				name, format = "uri$is_args$args", format[len("$is_args$args"):]
			} else {
				name, format = "args", format[len("$args"):]
			}
		}
		tokens = append(tokens, part{variable: nginxVariable(name)})
	}
	return compile(spec, tokens, t)
}

// nginxName cuts the name of a variable, maybe in braces, off what follows its "$".
func nginxName(s string) (name, rest string) {
	if strings.HasPrefix(s, "{") {
		name, rest, _ = strings.Cut(s[1:], "}")
		return name, rest
	}
	n := 0
	for n < len(s) && (s[n] == '_' || s[n]-'0' < 10 || s[n]|0x20 >= 'a' && s[n]|0x20 <= 'z') {
		n++
	}
	return s[:n], s[n:]
}

func nginxVariable(name string) variable {
	v, ok := ofNginx[name]
	switch {
	case ok:
	case name == "uri$is_args$args":
		v = variable{what: valTarget}
	case strings.HasPrefix(name, "http_"):
		v = variable{what: valHeader, name: textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(name[len("http_"):], "_", "-"))}
	case strings.HasPrefix(name, "upstream_") && !strings.HasPrefix(name, "upstream_http_") && !strings.HasPrefix(name, "upstream_cookie_"):
		v.shape = list
	case strings.Contains(tame, " "+name+" "):
		v.shape = word
	}
	v.text = "$" + name
	return v
}

// nginxDirective returns the format and the escape of a directive, or of what stands in one.
func nginxDirective(s string) (format, escape string, err error) {
	s = strings.TrimSpace(s)
	if after, ok := strings.CutPrefix(s, "log_format"); ok {
		s = strings.TrimSpace(after)
		i := strings.IndexAny(s, " \t\r\n")
		if i < 0 {
			return "", "", errors.New("log_format of nginx: there is no format after its name")
		}
		s = strings.TrimSpace(s[i:])
		if !strings.HasPrefix(s, "escape=") && s[0] != '\'' && s[0] != '"' {
			return "", "", errors.New("log_format of nginx: the format is not in quotes")
		}
	} else if !strings.HasPrefix(s, "escape=") {
		return s, "", nil
	}
	if after, ok := strings.CutPrefix(s, "escape="); ok {
		i := strings.IndexAny(after, " \t\r\n")
		if i < 0 {
			return "", "", errors.New("log_format of nginx: there is no format after its escape")
		}
		escape, s = after[:i], strings.TrimSpace(after[i:])
	}
	if s[0] != '\'' && s[0] != '"' {
		return s, escape, nil
	}
	// Strings side by side are one.
	var b strings.Builder
	for s = strings.TrimSpace(s); s != "" && s != ";"; s = strings.TrimSpace(s) {
		quote := s[0]
		if quote != '\'' && quote != '"' {
			return "", "", fmt.Errorf("log_format of nginx: %q is not in quotes", s)
		}
		i := 1
		for ; i < len(s) && s[i] != quote; i++ {
			if s[i] == '\\' && i+1 < len(s) {
				if j := strings.IndexByte(`"'\trn`, s[i+1]); j >= 0 {
					i++
					b.WriteByte("\"'\\\t\r\n"[j])
					continue
				}
			}
			b.WriteByte(s[i])
		}
		if i == len(s) {
			return "", "", errors.New("log_format of nginx: a quote is not closed")
		}
		s = s[i+1:]
	}
	return b.String(), escape, nil
}

// The format that ingress-nginx calls upstreaminfo.
const ingressFormat = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time ` +
	`[$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id`

func ingress(o Options) *Format {
	f := must(nginx(ingressFormat, o))
	f.Name = "ingress-nginx"
	return f
}
