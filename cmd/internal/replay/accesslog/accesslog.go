// Package accesslog parses the lines of access logs. Package feed imports it.
//
// A [Format] reads the lines of one kind of log. [Lookup] finds a format by its name, or makes one from a
// log_format of nginx, a LogFormat of Apache or a format string of Envoy. [Detect] recognizes the format of sample
// lines. A line that does not follow its format is an error: the package never guesses.
package accesslog

import (
	"bytes"
	"errors"
	"iter"
	"time"
)

// Entry is the request in a line. Fields that the line does not have are empty. A field shares the bytes of the line
// if its value is not escaped there. Otherwise the field uses the entry's own memory. So a field is valid until the
// line or the entry is used again. When this memory has grown, [Format.Parse] allocates nothing, except a few bytes
// for a duration that is written with its unit.
type Entry struct {
	// Time is the start of the request, in microseconds since the Unix epoch. If Ended is true, Time is the end,
	// because the line has no duration.
	Time int64
	// Method and Target are from the request line. Target includes the query, and in some formats it is an absolute
	// URL with the host. Both are empty if the server could not read the request.
	Method, Target, Host []byte
	Status               int   // 0 means that there was no response
	Sent                 int64 // the bytes of the response; -1 if the line does not have them
	Tokens               Tokens
	Model                []byte // the language model that the request uses
	// Client is the address or the name of the peer, without a port. Forwarded is X-Forwarded-For.
	Forwarded, Client  []byte
	Ended              bool
	User               []byte // the user name that the client sent, even if the server rejected it
	Duration           int64  // in microseconds; -1 if the line does not have it
	Referer, UserAgent []byte
	ID                 []byte  // the ID of the request
	Headers            []Field // other fields of the request, under their canonical names
	Attributes         []Field // attributes of the caller, from attr:NAME in [Options.Fields]

	own    []byte  // memory for values that had to be unescaped
	values []value // the values of a line of JSON
}

// Tokens has the numbers of tokens that the response reports. An unknown number is -1. Two of Total, Input and
// Output give the third.
type Tokens struct {
	Total, Input, Output int64
	Cached               int64 // the number of input tokens that came from a cache
}

// Of returns the number of tokens of a kind: total, input, output or uncached. It returns -1 if the number is
// unknown.
func (t *Tokens) Of(kind string) int64 {
	switch {
	case kind == "input":
		return t.Input
	case kind == "output":
		return t.Output
	case kind == "total":
		return t.Total
	case t.Input < 0 || t.Output < 0 || t.Cached < 0:
		return -1
	}
	return max(t.Input-t.Cached, 0) + t.Output
}

var noTokens = Tokens{-1, -1, -1, -1}

// complete derives one of the numbers from the two others.
func (t *Tokens) complete() {
	switch {
	case t.Total < 0 && t.Input >= 0 && t.Output >= 0:
		t.Total = t.Input + t.Output
	case t.Output < 0 && t.Input >= 0 && t.Total >= t.Input:
		t.Output = t.Total - t.Input
	case t.Input < 0 && t.Output >= 0 && t.Total >= t.Output:
		t.Input = t.Total - t.Output
	}
}

// Field is a field of a request's header, or an attribute. A header field that was sent several times becomes
// several Fields. The name is a byte slice because it may share the bytes of the line.
type Field struct {
	Name, Value []byte
}

// Tells describes what the lines of a format contain in addition to method, path and status. Rules that need more
// cannot be judged.
type Tells struct {
	Client    bool // the peer
	Forwarded bool
	User      bool
	Host      bool
	Query     bool
	Referer   bool
	UserAgent bool
	Headers   []string // the other fields of the request, by their canonical names
	AnyHeader bool     // all other fields of the request, as in Caddy's log
	Hidden    []string // the fields that the log hides by default, in spite of AnyHeader
	// Attributes are the names of the attributes that attr:NAME in [Options.Fields] maps.
	Attributes []string
	Began      bool // the start of the request, or its end and its duration
	Sent       bool // bytes of the response
	Model      bool // the model of the request
	// The numbers of tokens that responses report.
	TotalTokens, InputTokens, OutputTokens, CachedTokens bool
	Fine                                                 bool // times are finer than a second
	Sampled                                              bool // the log may leave out some requests on purpose
}

// Format reads the lines of one kind of log. It is never changed and may be shared.
type Format struct {
	Name  string // the name for [Lookup]
	Tells Tells
	line  func(line []byte, e *Entry) error
	// header returns the format of the lines that follow a directive such as #Fields. It is nil for formats without
	// directives.
	header func(directive []byte) (*Format, error)
	// narrow returns the Tells of the lines of a sample. It is nil if all lines of the format have the same Tells.
	narrow func(sample [][]byte) Tells
}

// Narrow returns the format with Tells set to what a sample of the log contains. Lines of generic JSON may contain
// anything; Narrow assumes that all lines contain the same values as the lines of the sample.
func (f *Format) Narrow(sample [][]byte) *Format {
	if f.narrow == nil {
		return f
	}
	narrowed := *f
	narrowed.Tells = f.narrow(sample)
	return &narrowed
}

// ErrSkip is the error of Parse for a line without a request: an empty line, a comment, a line of another logger in
// the same file, or a probe by the proxy itself.
var ErrSkip = errors.New("accesslog: no request")

// Parse reads a line, without its line end, into e. The error is [ErrSkip], or states in a few words how the
// line differs from the format. Parse allocates no errors, so that a log of garbage costs no memory.
func (f *Format) Parse(line []byte, e *Entry) error {
	e.reset()
	if len(line) == 0 {
		return ErrSkip
	}
	return f.line(line, e)
}

// Entries yields the entry or the error of each line of a sample. It uses a single Entry for all lines. A directive
// among the lines changes the format of the lines after it.
func (f *Format) Entries(sample [][]byte) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		var e Entry
		for _, line := range sample {
			var err error
			if f.Directives() && bytes.HasPrefix(line, []byte("#")) {
				var next *Format
				if next, err = f.Header(line); err == nil {
					f = next
					continue
				}
			} else {
				err = f.Parse(line, &e)
			}
			if !yield(&e, err) {
				return
			}
		}
	}
}

// requests yields the entries of a sample, without the errors.
func (f *Format) requests(sample [][]byte) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e, err := range f.Entries(sample) {
			if err == nil && !yield(e) {
				return
			}
		}
	}
}

// Header returns the format of the lines after a directive. A directive is a line that begins with "#". If the
// format has no directives, Header returns f.
func (f *Format) Header(directive []byte) (*Format, error) {
	if f.header == nil {
		return f, nil
	}
	return f.header(directive)
}

// Directives reports whether lines that begin with "#" may change the format.
func (f *Format) Directives() bool { return f.header != nil }

// keep is the maximum size in bytes of the memory that an entry keeps for the next line. Without it, a few huge lines
// would make every entry as large as the largest.
const keep = 64 << 10

func (e *Entry) reset() {
	own, headers := e.own, e.Headers
	if cap(own) > keep {
		own = nil
	}
	if cap(headers) > keep/64 {
		headers = nil
	}
	*e = Entry{Sent: -1, Duration: -1, Tokens: noTokens, Headers: headers[:0], Attributes: e.Attributes[:0], own: own[:0], values: e.values}
}

// Options have facts about a log that its lines do not contain.
type Options struct {
	// Zone is the time zone of times without a zone, such as HAProxy's. Nil means UTC.
	Zone *time.Location
	// Fields maps values to their paths in generic JSON lines, such as "client": "remote.ip". See [JSONFields].
	Fields map[string]string
}
