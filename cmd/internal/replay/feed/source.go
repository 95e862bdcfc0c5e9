package feed

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

const (
	readSize = 128 << 10 // bytes of a read
	// maxZstd is the largest window of a zstd file, in bytes. The zstd program, too, reads files with a larger
	// window only with an option.
	maxZstd = 128 << 20

	sampleLines = 100
	sampleBytes = 1 << 20
)

// source is one log.
type source struct {
	name   string
	file   *File
	info   fs.FileInfo // set for a regular file, which can be opened again
	size   int64       // the bytes on disk; -1 if unknown
	format *accesslog.Format
	first  int64        // the time of the first request in the sample, or MinInt64
	done   atomic.Int64 // bytes read

	raw   io.Reader // the open file, if any
	shut  func()    // may be called more than once
	ahead []byte    // bytes of the sample that cannot be read again
	text  io.Reader // the decompressed text, if the file stays open
	bad   error     // the error if the file breaks off in its first bytes
}

// newSource opens the file, to check that it exists. A file that cannot be opened twice stays open.
func newSource(ctx context.Context, name string, o Options) (*source, error) {
	s := &source{name: name, size: -1, first: math.MinInt64, shut: func() {}}
	if name == "-" {
		if o.Stdin == nil {
			return nil, errors.New("there is no standard input")
		}
		s.raw = piped(ctx, o.Stdin)
		return s, nil
	}
	in, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	info, err := in.Stat()
	switch {
	case err != nil:
		in.Close()
		return nil, err
	case info.IsDir():
		in.Close()
		return nil, fmt.Errorf("%s is a directory: name the logs in it, such as %s/*.log", name, name)
	case info.Mode().IsRegular():
		s.info, s.size = info, info.Size()
		return s, in.Close()
	}
	// The file is a pipe or a device. A read from it ends when it is closed.
	stop := context.AfterFunc(ctx, func() { in.Close() })
	s.raw, s.shut = in, func() { stop(); in.Close() }
	return s, nil
}

// open returns the lines of the source from the beginning. After the source has been closed, open may be called
// again. If the source cannot be opened twice, open returns the sample from memory, followed by unread lines.
func (s *source) open() (io.Reader, error) {
	switch {
	case s.bad != nil:
		return nil, s.bad
	case s.text != nil:
		return io.MultiReader(bytes.NewReader(s.ahead), s.text), nil
	}
	if s.info != nil {
		in, err := os.Open(s.name)
		if err != nil {
			return nil, err
		}
		s.raw, s.shut = in, func() { in.Close() }
		info, err := in.Stat()
		if err == nil && !os.SameFile(info, s.info) {
			err = fmt.Errorf("%s was replaced after the command started: if logs were rotated, run the command again", s.name)
		}
		if err != nil {
			s.shut()
			return nil, err
		}
	}
	s.done.Store(0)
	return decompressed(&counted{r: s.raw, n: &s.done})
}

// look recognizes the format by the first lines, and finds the time of the first request.
func (s *source) look(o Options, size sizes) error {
	text, err := s.open()
	if broken(err) {
		s.bad = err
		return nil
	}
	if err != nil {
		return named(s.name, err)
	}
	sample, whole, err := s.sample(text, max(size.line, sampleBytes))
	if s.info != nil {
		s.shut()
		s.done.Store(0)
	} else {
		s.text = text
	}
	if err != nil {
		return named(s.name, err)
	}
	if o.Format != nil {
		s.format = o.Format.Narrow(sample)
	} else {
		if len(sample) == 0 || whole && onlyComments(sample) {
			return nil
		}
		if s.format, err = accesslog.Detect(sample, o.Parse); err != nil {
			return named(s.name, err)
		}
	}
	for e, err := range s.format.Entries(sample) {
		if err == nil {
			s.first = e.Time
			break
		}
	}
	s.file.Format, s.file.Tells = s.format.Name, s.format.Tells
	return nil
}

// sample returns the first lines that are not empty, and whether these are all lines. It keeps bytes that cannot be
// read again.
func (s *source) sample(text io.Reader, most int) (lines [][]byte, whole bool, err error) {
	buf := make([]byte, most)
	n, err := readFull(text, buf)
	buf = buf[:n]
	if s.info == nil {
		s.ahead = buf
	}
	switch {
	case err == io.EOF:
		whole = true
	case err != nil && !broken(err): // a damaged file is reported when it is read
		return nil, false, err
	default:
		buf = buf[:bytes.LastIndexByte(buf, '\n')+1]
	}
	for line := range bytes.Lines(bytes.TrimPrefix(buf, bom)) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		if len(lines) == sampleLines {
			return lines, false, nil
		}
		lines = append(lines, line)
	}
	return lines, whole, nil
}

func onlyComments(sample [][]byte) bool {
	for _, line := range sample {
		if line[0] != '#' {
			return false
		}
	}
	return true
}

// earliest returns a time in microseconds before which the source has no request.
func (s *source) earliest(window time.Duration) int64 {
	if s.first == math.MinInt64 {
		return s.first
	}
	return s.first - window.Microseconds()
}

// magicSize is the number of bytes that are needed to recognize the type of a file.
const magicSize = 6

// foreign has the first bytes of file types that cannot be read, and commands that make them readable.
var foreign = []struct{ magic, what, remedy string }{
	{"BZh", "compressed with bzip2", "bzip2 -dc"},
	{"\xfd7zXZ\x00", "compressed with xz", "xz -dc"},
	{"\x04\x22\x4d\x18", "compressed with lz4", "lz4 -dc"},
	{"PK\x03\x04", "a zip archive", "unzip -p"},
	{"\xff\xfe", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "UTF-16", "iconv -f UTF-16 -t UTF-8"},
}

var (
	bom   = []byte("\xef\xbb\xbf")
	gz    = []byte("\x1f\x8b")
	zst   = []byte("\x28\xb5\x2f\xfd")
	zskip = []byte("\x2a\x4d\x18") // marks, after a byte from 0x50 to 0x5f, a skippable frame; files of pzstd begin with one
)

// decompressed returns a reader of the decompressed contents of a file.
func decompressed(file *counted) (io.Reader, error) {
	in := bufio.NewReaderSize(file, readSize)
	head, err := in.Peek(magicSize)
	if err != nil && err != io.EOF {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, gz):
		z, err := gzip.NewReader(in)
		return compressed{z, file}, file.blame(err)
	case bytes.HasPrefix(head, zst), len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], zskip):
		// A decoder with concurrency 1 has no goroutine, so it need not be closed.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstd))
		return compressed{z, file}, file.blame(err)
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return nil, fmt.Errorf("it is %s, which is not supported: convert it with %q, and read the output from standard input with \"-\"", f.what, f.remedy)
		}
	}
	return in, nil
}

// brokenError is an error of the compressed data, as opposed to an error of reading the file.
type brokenError struct{ err error }

func (e *brokenError) Error() string {
	if errors.Is(e.err, io.ErrUnexpectedEOF) || errors.Is(e.err, io.EOF) {
		return "the compressed file breaks off"
	}
	return "the compressed file is damaged: " + e.err.Error()
}

func broken(err error) bool {
	_, is := errors.AsType[*brokenError](err)
	return is
}

// compressed distinguishes errors of the compressed data from errors of reading the file.
type compressed struct {
	io.Reader
	file *counted
}

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if err != io.EOF {
		err = c.file.blame(err)
	}
	return n, err
}

// counted counts the bytes that are read from a file, and keeps the error that ended the reading.
type counted struct {
	r   io.Reader
	n   *atomic.Int64
	err error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	if err != io.EOF {
		c.err = err
	}
	return n, err
}

// blame returns the cause of a decompression error: the error of reading the file if there is one, and otherwise a
// [brokenError].
func (c *counted) blame(err error) error {
	switch {
	case err == nil:
		return nil
	case c.err != nil:
		return c.err
	}
	return &brokenError{err}
}

// piped reads in a goroutine, so that a blocked read ends with the context. The goroutine itself ends when its read
// returns.
func piped(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{r}, make([]byte, readSize))
		stop()
		in.CloseWithError(err) // nil: the end of the file
	}()
	return out
}
