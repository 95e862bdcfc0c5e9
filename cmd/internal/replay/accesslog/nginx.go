package accesslog

import (
	"fmt"
	"net/textproto"
	"regexp"
	"strings"
)

// ofNginx has the variables of nginx that fill fields of an entry, and some others with a known shape. Variables that
// are neither in ofNginx nor in tame may have any value.
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
	"req_id":               {what: valID, shape: word}, // a variable of ingress-nginx
	"time_local":           {what: valLogTime, shape: fixed, width: 26},
	"time_iso8601":         {what: valISOTime, shape: fixed, width: 25, rank: 1},
	"msec":                 {what: valEpoch, shape: number, scale: 1e6, rank: 2},
	"remote_port":          {shape: port},
	"server_port":          {shape: port},
	// The parts of a request_uri.
	"is_args":          {shape: word},
	"is_args$args":     {what: valQuery},
	"uri$is_args$args": {what: valTarget},
}

// tame lists variables of nginx that fill no field, and have values without spaces.
const tame = " binary_remote_addr body_bytes_received bytes_received connection connection_requests connection_time connections_active content_length" +
	" gzip_ratio hostname https limit_conn_status limit_rate limit_req_status msec nginx_version pid pipe proxy_alternative_upstream_name proxy_host proxy_port" +
	" proxy_protocol_addr proxy_protocol_port proxy_upstream_name realip_remote_addr realip_remote_port request_completion request_length scheme server_addr" +
	" ssl_cipher ssl_early_data ssl_protocol ssl_session_id ssl_session_reused tcpinfo_rtt tcpinfo_rttvar time_iso8601 upstream_cache_status "

// nginx compiles a log_format. The argument is the whole directive from a configuration, or only the text of the
// format. If the directive has an escape, "escape=json " or similar comes before the text.
func nginx(spec string, o Options) (*Format, error) {
	format, escape, err := nginxDirective(spec)
	if err != nil {
		return nil, fmt.Errorf("log_format of nginx: %w", err)
	}
	t := &text{ends: true, zone: o.Zone}
	switch escape {
	case "", "default", "json":
		t.escapes = true
	case "none":
	default:
		return nil, fmt.Errorf("log_format of nginx: unknown escape=%s: use default, json or none", escape)
	}
	tokens, err := tokenize(format, '$', nginxSyntax, func(m []string) ([]part, error) {
		return []part{{variable: nginxVariable(m[1] + m[2])}}, nil
	})
	if err != nil {
		return nil, fmt.Errorf("log_format of nginx: %w", err)
	}
	return compile(spec, tokens, t)
}

// nginxSyntax is the syntax of a variable, with or without braces. Path and query usually stand together, so they
// are matched as one variable.
var nginxSyntax = regexp.MustCompile(`^\$(?:\{(\w+)\}|(uri\$is_args\$args|is_args\$args|\w+))`)

func nginxVariable(name string) variable {
	v, ok := ofNginx[name]
	switch {
	case ok:
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

// nginxHead matches the part of a directive before its format, or an escape alone.
var nginxHead = regexp.MustCompile(`^\s*(log_format\s+\S+\s+)?(?:escape=(\S+)\s+)?`)

// nginxDirective returns the format and the escape of a directive, or of a format alone.
func nginxDirective(s string) (format, escape string, err error) {
	m := nginxHead.FindStringSubmatch(s)
	escape, s = m[2], strings.TrimSpace(s[len(m[0]):])
	if m[1] == "" && (escape == "" || !strings.HasPrefix(s, "'") && !strings.HasPrefix(s, `"`)) {
		return s, escape, nil
	}
	// Adjacent strings are joined.
	for s = strings.TrimSuffix(s, ";"); s != ""; s = strings.TrimSpace(s) {
		var text string
		if text, s, err = quotedText(s); err != nil {
			return "", "", err
		}
		format += text
	}
	return format, escape, nil
}

// ingressFormat is the format that ingress-nginx calls upstreaminfo.
const ingressFormat = `$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" "$http_user_agent" $request_length $request_time ` +
	`[$proxy_upstream_name] [$proxy_alternative_upstream_name] $upstream_addr $upstream_response_length $upstream_response_time $upstream_status $req_id`

func ingress(o Options) *Format {
	f := must(nginx(ingressFormat, o))
	f.Name = "ingress-nginx"
	return f
}
