// Package accesslog parses the lines of access logs. Package feed is above it.
//
// A [Format] reads the lines of one kind of log. [Lookup] finds it by its name or makes it from a
// log_format of nginx or a LogFormat of Apache, [Detect] recognizes it by lines. A line that does not
// follow its format is an error and never a guess.
package accesslog

import (
	"bytes"
	"errors"
	"iter"
	"time"
)

// Entry is the request that a line tells of. What is empty was not told. Its bytes are those of the
// line where it holds them as they were sent, else the entry's own memory, so that they last until
// either is used again; once that memory has grown, [Format.Parse] allocates nothing but a few bytes for
// a duration that is written with its unit.
type Entry struct {
	// Time is the start of the request, in microseconds since the Unix epoch. If Ended, it is the end, because the
	// line has no duration.
	Time int64
	// Method and Target are those of the request line. The target has its query, and in some formats it is
	// absolute, with the host. Both are empty if the server could not read the request.
	Method, Target, Host []byte
	Status               int   // 0 if there was no response
	Sent                 int64 // bytes of the response, -1 if that is not told
	Tokens               Tokens
	Model                []byte // of the request
	// Client is the address or the name of the peer, without a port. Forwarded is X-Forwarded-For.
	Forwarded, Client  []byte
	Ended              bool
	User               []byte // that the client has given, whether it may or not
	Duration           int64  // microseconds, -1 if that is not told
	Referer, UserAgent []byte
	ID                 []byte  // of the request
	Headers            []Field // other fields of the request, under their canonical names
	Attributes         []Field // of the caller, as attr:NAME of [Options.Fields] has them

	own    []byte  // memory of what had to be unescaped
	values []value // of a line of JSON
}

// Tokens are the numbers of tokens that the response reports; -1: unknown. Two of Total, Input and Output give the
// third.
type Tokens struct {
	Total, Input, Output int64
	Cached               int64 // the part of Input from a cache
}

// Of returns the number of tokens of a kind: total, input, output or uncached. It returns -1 if that is unknown.
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

// Field is a field of a request's header, or an attribute. A field that was sent several times is there
// as often. The name is bytes because it may be that of a client, out of the line.
type Field struct {
	Name, Value []byte
}

// Tells has what the lines of a format contain beside method, path and status. Rules that need more cannot be
// judged.
type Tells struct {
	Client    bool // the peer
	Forwarded bool
	User      bool
	Host      bool
	Query     bool
	Referer   bool
	UserAgent bool
	Headers   []string // the other fields of the request, by their canonical names
	AnyHeader bool     // and whichever else was there, such as in Caddy's
	Hidden    []string // but not these, which the log blots out unless told otherwise
	// Attributes are the names of those that attr:NAME of [Options.Fields] maps.
	Attributes []string
	Began      bool // when the request began, or ended and took
	Sent       bool // bytes of the response
	Model      bool // that requests ask for
	// Of the tokens that responses report.
	TotalTokens, InputTokens, OutputTokens, CachedTokens bool
	Fine                                                 bool // times are finer than a second
	Sampled                                              bool // some requests may have been left out on purpose
}

// Format reads the lines of one kind of log. It is never changed and may be shared.
type Format struct {
	Name  string // as [Lookup] takes it
	Tells Tells
	line  func(line []byte, e *Entry) error
	// header returns the format of the lines that follow a directive such as #Fields; nil for formats without
	// directives.
	header func(directive []byte) (*Format, error)
	// narrow returns what a sample of lines tells; nil where every line of the format tells the same.
	narrow func(sample [][]byte) Tells
}

// Narrow returns the format with what it Tells as a sample of the log has it. Lines of generic JSON may
// tell anything, and tell what the first ones do.
func (f *Format) Narrow(sample [][]byte) *Format {
	if f.narrow == nil {
		return f
	}
	narrowed := *f
	narrowed.Tells = f.narrow(sample)
	return &narrowed
}

// ErrSkip is what Parse returns of a line that tells of no request: it is empty, a comment, of another
// logger in the same file, or of a probe that the proxy itself has made.
var ErrSkip = errors.New("accesslog: no request")

// Parse reads a line, without what ends it, into e. The error is [ErrSkip], or has in a few words the difference
// from the format. Errors are created once, so that a log of garbage costs no memory.
func (f *Format) Parse(line []byte, e *Entry) error {
	e.reset()
	if len(line) == 0 {
		return ErrSkip
	}
	return f.line(line, e)
}

// Entries yields the entries of the lines of a sample, in the memory of one entry, or their errors. Directives
// among them change the format.
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

// requests yields the entries alone.
func (f *Format) requests(sample [][]byte) iter.Seq[*Entry] {
	return func(yield func(*Entry) bool) {
		for e, err := range f.Entries(sample) {
			if err == nil && !yield(e) {
				return
			}
		}
	}
}

// Header returns the format that holds from a directive on, which is a line that begins with "#". It is
// f where directives mean nothing.
func (f *Format) Header(directive []byte) (*Format, error) {
	if f.header == nil {
		return f, nil
	}
	return f.header(directive)
}

// Directives reports whether lines that begin with "#" may change the format.
func (f *Format) Directives() bool { return f.header != nil }

// keep is how much memory of its own an entry keeps for the next line. A log of huge lines would
// otherwise leave every entry as large as the largest.
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

// Options are what a log does not contain.
type Options struct {
	// Zone is that of times without one, such as HAProxy's: UTC if nil.
	Zone *time.Location
	// Fields are where generic JSON lines have what, such as "client": "remote.ip"; see [JSONFields].
	Fields map[string]string
}
