package accesslog

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// Each constant stands for something that a field of a JSON line can contain, such as the method or the status. The
// times are a group, and so are the durations, and the parts of a request line. If a value of a group is mapped, the
// others are not read from their usual paths.
const (
	whatClient = iota
	whatForwarded
	whatUser
	whatMethod
	whatTarget
	whatPath
	whatQuery
	whatRequest
	whatHost
	whatStatus
	whatSent
	whatTokens
	whatInput
	whatOutput
	whatCached
	whatModel
	whatReferer
	whatAgent
	whatID
	whatSeconds
	whatMillis
	whatMicros
	whatNanos
	whatLasting
	whatBegan
	whatEnded
	whats
)

// whatNames has the names in [Options.Fields], and the usual paths of these values in the logs of common programs. If
// a line has several of these paths, the first is used.
var whatNames = [whats]struct{ name, usual string }{
	// nginx, ECS, Envoy and Istio, slog, zap and logrus with gin or echo, pino, Kong
	whatClient: {"client", "remote_addr remote_ip client.ip source.ip client.address source.address downstream_remote_address " +
		"downstream_direct_remote_address req.remoteAddress request.ip request.remote_ip request.remote_addr request.remoteAddr " +
		"client_ip clientIp clientip remoteAddr remote ip peer addr"},
	whatForwarded: {"forwarded", "http_x_forwarded_for x_forwarded_for x-forwarded-for xff " +
		"http.request.headers.x-forwarded-for req.headers.x-forwarded-for request.headers.x-forwarded-for"},
	whatUser:   {"user", "remote_user user.name user_name username"},
	whatMethod: {"method", "request_method http.request.method http.method method req.method request.method verb"},
	whatTarget: {"target", "request_uri url.original x_envoy_original_path http.target req.originalUrl req.url request.uri request.url " +
		"target uri url"},
	whatPath:    {"path", "url.path http.path request.path path"},
	whatQuery:   {"query", "url.query args query_string request.query query"},
	whatRequest: {"request", "request request_line"},
	whatHost:    {"host", "http_host host authority url.domain http.host req.headers.host request.host request.headers.host server_name vhost"},
	whatStatus: {"status", "status http.response.status_code response_code http.status_code res.statusCode response.status status_code " +
		"statusCode resp_status response.status_code code"},
	whatSent: {"sent", "body_bytes_sent http.response.body.bytes bytes_sent http.response.bytes response.length response.size bytes_out " +
		"response_size resp_bytes size bytes"},
	whatTokens: {"tokens", "usage.total_tokens response.usage.total_tokens total_tokens"},
	whatInput: {"input_tokens", "usage.prompt_tokens usage.input_tokens response.usage.input_tokens gen_ai.usage.input_tokens " +
		"prompt_tokens input_tokens"},
	whatOutput: {"output_tokens", "usage.completion_tokens usage.output_tokens response.usage.output_tokens gen_ai.usage.output_tokens " +
		"completion_tokens output_tokens"},
	whatCached: {"cached_tokens", "usage.prompt_tokens_details.cached_tokens usage.input_tokens_details.cached_tokens " +
		"response.usage.input_tokens_details.cached_tokens cached_tokens"},
	whatModel:   {"model", "model request.model gen_ai.request.model"},
	whatReferer: {"referer", "http_referer http.request.referrer req.headers.referer request.referer request.headers.referer referer referrer"},
	whatAgent: {"user_agent", "http_user_agent user_agent.original user_agent user-agent userAgent http.user_agent " +
		"req.headers.user-agent request.headers.user-agent request.user-agent request.user_agent"},
	whatID:      {"id", "request_id http.request.id x_request_id req.id request.id requestId"},
	whatSeconds: {"duration_s", "request_time"},
	whatMillis:  {"duration_ms", "responseTime latencies.request duration_ms latency_ms elapsed_ms"},
	whatMicros:  {"duration_us", "duration_us latency_us"},
	whatNanos:   {"duration_ns", "event.duration duration_ns latency_ns"},
	whatLasting: {"duration", "duration latency elapsed response_time responseTime took"},
	whatBegan:   {"time", "event.start start_time started_at StartUTC request.time"},
	whatEnded: {"ended", "event.end msec time_iso8601 time_local @timestamp timestamp ts time asctime datetime " +
		"date_time t"},
}

// JSONFields returns the keys of [Options.Fields]. The value of a key is a path in a JSON line, with dots between the
// names of objects. "header:NAME" maps an additional field of the request's header, and "attr:NAME" an attribute of
// the caller. "time" is the start of a request, and "ended" the end. The start also follows from end and duration. A
// duration is a number of seconds, milliseconds, microseconds or nanoseconds, or a text with its unit, such as
// "12.4ms". A time is a text as in RFC 3339, or a number since the Unix epoch with a unit that follows from its size.
// With "layout", times have that layout of package time. "request" is a whole request line. "tokens" is the number of
// all tokens that a model has read and written, as its response reports it; "input_tokens" include "cached_tokens".
func JSONFields() []string {
	names := []string{"layout", "header:NAME", "attr:NAME"}
	for _, w := range whatNames {
		names = append(names, w.name)
	}
	slices.Sort(names)
	return names
}

// These constants bound the length of a path, the number of paths, and the dots in a path.
const (
	longestField = 200
	mostFields   = 100
	mostDots     = 8
)

// checkFields returns an error for an invalid map of fields.
func checkFields(fields map[string]string) error {
	if len(fields) > mostFields {
		return fmt.Errorf("%d fields are mapped, more than the maximum of %d", len(fields), mostFields)
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		path := fields[name]
		kind, of, _ := strings.Cut(name, ":")
		switch {
		case name == "layout":
			if _, err := time.Parse(path, time.Unix(0, 0).UTC().Format(path)); err != nil || !strings.Contains(path, "05") {
				return fmt.Errorf("the layout %q is not one of Go's package time, such as \"2006-01-02 15:04:05.000\"", path)
			}
			continue
		case (kind == "header" || kind == "attr") && of != "":
		case !slices.ContainsFunc(whatNames[:], func(w struct{ name, usual string }) bool { return w.name == name }):
			return fmt.Errorf("unknown field %q: use one of %s", name, strings.Join(JSONFields(), ", "))
		}
		if path == "" || len(path) > longestField || strings.Count(path, ".") > mostDots || strings.ContainsAny(path, " \t\r\n") {
			return fmt.Errorf("field %s: %q is not a path to a value, such as \"request.remote_ip\"", name, path)
		}
	}
	return nil
}

// extra is a mapped header field or attribute.
type extra struct {
	name   []byte
	header bool
}

// jsonFields reads the JSON lines of any program, by common names or by Options.Fields.
func jsonFields(o Options) *Format {
	wanted := make([]string, whats)
	for i, w := range whatNames {
		wanted[i] = w.usual
	}
	group := func(members ...int) (mapped bool) {
		if mapped = slices.ContainsFunc(members, func(i int) bool { return o.Fields[whatNames[i].name] != "" }); mapped {
			for _, i := range members {
				wanted[i] = ""
			}
		}
		return mapped
	}
	group(whatBegan, whatEnded)
	group(whatSeconds, whatMillis, whatMicros, whatNanos, whatLasting)
	mapped := group(whatTarget, whatPath, whatQuery, whatRequest)
	for i, w := range whatNames {
		if path := o.Fields[w.name]; path != "" {
			wanted[i] = path
		}
	}
	tells := Tells{
		Client: true, Forwarded: true, User: true, Host: true, Query: true, Referer: true, UserAgent: true,
		Began: wanted[whatBegan] != "", Sent: true, Fine: true,
		Model: true, TotalTokens: true, InputTokens: true, OutputTokens: true, CachedTokens: true,
	}
	var extras []extra
	for _, name := range slices.Sorted(maps.Keys(o.Fields)) {
		kind, of, _ := strings.Cut(name, ":")
		switch kind {
		case "header":
			of = textproto.CanonicalMIMEHeaderKey(of)
			tells.Headers = append(tells.Headers, of)
		case "attr":
			tells.Attributes = append(tells.Attributes, of)
		default:
			continue
		}
		extras, wanted = append(extras, extra{[]byte(of), kind == "header"}), append(wanted, o.Fields[name])
	}
	when := timeIn(o.Zone)
	if layout := o.Fields["layout"]; layout != "" {
		when = laidOut(layout, o.Zone)
	}
	f := &Format{Name: "json", Tells: tells}
	log := jsonLog{fields: wanted, when: when}
	log.begin = func(e *Entry) error {
		if !e.has(whatMethod) && !e.has(whatRequest) && !((e.has(whatTarget) || e.has(whatPath)) && (mapped || e.has(whatStatus))) {
			return ErrSkip // another line of the program; such a line may have a path, too
		}
		return nil
	}
	log.finish = func(e *Entry) error {
		if len(e.Target) == 0 {
			e.Method, e.Target = requestLine(e.textIn(whatRequest))
		}
		for i, x := range extras {
			text := e.textIn(whats + i)
			switch {
			case len(text) == 0:
			case x.header:
				e.Headers = append(e.Headers, Field{x.name, text})
			default:
				e.Attributes = append(e.Attributes, Field{x.name, text})
			}
		}
		return nil
	}
	f.line = log.reader()
	f.narrow = func(sample [][]byte) Tells {
		var seen [whats]bool
		tells, read := f.Tells, false
		tells.Fine, tells.Began = false, true
		for e := range f.requests(sample) {
			read = true
			for i := range seen {
				seen[i] = seen[i] || e.has(i)
			}
			tells.Fine = tells.Fine || e.Time%1e6 != 0
			tells.Began = tells.Began && !e.Ended
		}
		if !read {
			return f.Tells
		}
		tells.Client, tells.Forwarded, tells.User = seen[whatClient], seen[whatForwarded], seen[whatUser]
		tells.Host, tells.Referer, tells.UserAgent = seen[whatHost], seen[whatReferer], seen[whatAgent]
		tells.Query = seen[whatTarget] || seen[whatQuery] || seen[whatRequest]
		tells.Sent, tells.Model, tells.CachedTokens = seen[whatSent], seen[whatModel], seen[whatCached]
		total, in, out := seen[whatTokens], seen[whatInput], seen[whatOutput]
		tells.TotalTokens, tells.InputTokens, tells.OutputTokens = total || in && out, in || total && out, out || total && in
		return tells
	}
	return f
}

// laidOut returns a function that reads the time in a slot, which must have the layout. For any other text, the
// function allocates memory, because package time makes an error.
func laidOut(layout string, zone *time.Location) func(e *Entry, slot int) (int64, error) {
	if zone == nil {
		zone = time.UTC
	}
	return func(e *Entry, slot int) (int64, error) {
		at, err := time.ParseInLocation(layout, string(e.textIn(slot)), zone)
		if err != nil {
			return 0, errTime
		}
		return at.UnixMicro(), nil
	}
}
