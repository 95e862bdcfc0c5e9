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
	readSize = 128 << 10 // of a read of a file
	// maxZstd is the most memory that a zstd file may want for its window. The zstd program, too,
	// reads files beyond this only if told to.
	maxZstd = 128 << 20

	sampleLines = 100
	sampleBytes = 1 << 20
)

// source is one log.
type source struct {
	name   string
	file   *File
	info   fs.FileInfo // of a regular file, which is opened again
	size   int64       // as on disk; -1 if not known
	format *accesslog.Format
	first  int64        // time of the first request in the sample; MinInt64 if there is none
	done   atomic.Int64 // bytes read

	raw   io.Reader // what is open, if something is
	shut  func()
	ahead []byte    // what was read of the sample and cannot be read again
	text  io.Reader // decompressed, if the file stays open
}

// newSource opens what name is, to see that it is there. What cannot be opened twice stays open.
func newSource(ctx context.Context, name string, o Options) (*source, error) {
	s := &source{name: name, size: -1, first: math.MinInt64}
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
	// A pipe or a device: a read of it ends when it is closed.
	stop := context.AfterFunc(ctx, func() { in.Close() })
	s.raw, s.shut = in, func() { stop(); in.Close() }
	return s, nil
}

// reader returns the lines of the source from the beginning. It may be called again once it is closed,
// except that what cannot be opened twice goes on after the sample.
func (s *source) reader() (io.Reader, error) {
	if s.text != nil {
		return io.MultiReader(bytes.NewReader(s.ahead), s.text), nil
	}
	if s.info != nil {
		in, err := os.Open(s.name)
		if err != nil {
			return nil, err
		}
		info, err := in.Stat()
		if err == nil && !os.SameFile(info, s.info) {
			err = fmt.Errorf("%s has become another file since the replay began: logs were rotated; run it again", s.name)
		}
		if err != nil {
			in.Close()
			return nil, err
		}
		s.raw, s.shut = in, func() { in.Close() }
	}
	s.done.Store(0)
	buffered := bufio.NewReaderSize(&counted{s.raw, &s.done}, readSize)
	head, err := buffered.Peek(magicSize)
	if err != nil && err != io.EOF {
		return nil, err
	}
	return decompressed(buffered, head)
}

// close may be called more than once.
func (s *source) close() {
	if s.shut != nil {
		s.shut()
		s.shut = nil
	}
	if z, ok := s.text.(*zstdReader); ok {
		z.Close()
	}
}

// look recognizes the format by the first lines, and takes the time of the first request.
func (s *source) look(o Options, size sizes) error {
	text, err := s.reader()
	if err != nil {
		return named(s.name, err)
	}
	sample, whole, err := s.sample(text, max(size.line, sampleBytes))
	if s.info != nil {
		if z, ok := text.(*zstdReader); ok {
			z.Close()
		}
		s.close()
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
	format := s.format
	var e accesslog.Entry
	for _, line := range sample {
		if format.Directives() && line[0] == '#' {
			if next, err := format.Header(line); err == nil {
				format = next
			}
			continue
		}
		if format.Parse(line, &e) == nil {
			s.first = e.Time
			break
		}
	}
	s.file.Name, s.file.Format, s.file.Tells = s.name, format.Name, format.Tells
	return nil
}

// sample returns the first lines that are not empty, and whether these are all. What cannot be read
// again is kept.
func (s *source) sample(text io.Reader, most int) (lines [][]byte, whole bool, err error) {
	s.file.Name = s.name
	buf := make([]byte, 0, 16<<10)
	for at := 0; ; {
		n, err := io.ReadAtLeast(text, buf[len(buf):cap(buf)], 1)
		buf = buf[:len(buf)+n]
		for len(lines) < sampleLines {
			end := bytes.IndexByte(buf[at:], '\n')
			if end < 0 {
				break
			}
			lines = appendLine(lines, buf[at:at+end], at == 0)
			at += end + 1
		}
		if s.info == nil {
			s.ahead = buf
		}
		switch {
		case err == io.EOF:
			// A file that is damaged is told of when it is read.
			if at < len(buf) && len(lines) < sampleLines {
				lines = appendLine(lines, buf[at:], at == 0)
			}
			return lines, true, nil
		case err != nil && broken(err):
			return lines, false, nil
		case err != nil:
			return nil, false, err
		case len(lines) == sampleLines || len(buf) >= most:
			return lines, false, nil
		case len(buf) == cap(buf):
			buf = append(make([]byte, 0, 4*cap(buf)), buf...)
		}
	}
}

func appendLine(lines [][]byte, line []byte, first bool) [][]byte {
	if first {
		line = bytes.TrimPrefix(line, bom)
	}
	if line = bytes.TrimSuffix(line, []byte("\r")); len(line) == 0 {
		return lines
	}
	return append(lines, bytes.Clone(line))
}

func onlyComments(sample [][]byte) bool {
	for _, line := range sample {
		if line[0] != '#' {
			return false
		}
	}
	return true
}

// earliest is a time before which the source has no request, in microseconds.
func (s *source) earliest(window time.Duration) int64 {
	if s.first == math.MinInt64 {
		return s.first
	}
	return s.first - window.Microseconds()
}

// magicSize is how many bytes tell what a file is.
const magicSize = 6

// foreign are the beginnings of files that are not read, and what makes them readable.
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
	zskip = []byte("\x2a\x4d\x18") // after a byte of 0x50 to 0x5f: a frame to skip, as pzstd begins with
)

// decompressed returns what is in a file that begins with head.
func decompressed(in io.Reader, head []byte) (io.Reader, error) {
	switch {
	case bytes.HasPrefix(head, gz):
		z, err := gzip.NewReader(in)
		if err != nil {
			return failed{err}, nil
		}
		return compressed{z}, nil
	case bytes.HasPrefix(head, zst), len(head) >= 4 && head[0]&0xf0 == 0x50 && bytes.Equal(head[1:4], zskip):
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxZstd))
		if err != nil {
			return failed{err}, nil
		}
		return &zstdReader{compressed{z}, z}, nil
	}
	for _, f := range foreign {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return nil, fmt.Errorf("it is %s, which is not read: give what %q writes of it, by - on standard input", f.what, f.remedy)
		}
	}
	return in, nil
}

// brokenError is what is wrong with the compression, and not with reading.
type brokenError struct{ err error }

func (e *brokenError) Error() string {
	if errors.Is(e.err, io.ErrUnexpectedEOF) || errors.Is(e.err, io.EOF) {
		return "the compressed file breaks off"
	}
	return "the compressed file is damaged: " + e.err.Error()
}

func (e *brokenError) Unwrap() error { return e.err }

func broken(err error) bool {
	var b *brokenError
	return errors.As(err, &b)
}

// compressed tells errors of the compression from those of the file.
type compressed struct{ r io.Reader }

func (c compressed) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	return n, apart(err)
}

// failed is a compressed file that breaks off in its first bytes.
type failed struct{ err error }

func (f failed) Read([]byte) (int, error) {
	if f.err == io.EOF {
		return 0, apart(io.ErrUnexpectedEOF)
	}
	return 0, apart(f.err)
}

func apart(err error) error {
	var file *fileError
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.As(err, &file):
		return file
	}
	return &brokenError{err}
}

type zstdReader struct {
	compressed
	z *zstd.Decoder
}

func (z *zstdReader) Close() { z.z.Close() }

// fileError is an error of reading the file itself.
type fileError struct{ err error }

func (e *fileError) Error() string { return e.err.Error() }
func (e *fileError) Unwrap() error { return e.err }

// counted counts what is read of a file.
type counted struct {
	r io.Reader
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	if err != nil && err != io.EOF {
		err = &fileError{err}
	}
	return n, err
}

// piped reads in a goroutine, so that a read that blocks ends with the context. The goroutine itself ends with its
// read.
func piped(ctx context.Context, r io.Reader) io.Reader {
	out, in := io.Pipe()
	stop := context.AfterFunc(ctx, func() { in.CloseWithError(context.Cause(ctx)) })
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{in}, struct{ io.Reader }{r}, make([]byte, readSize))
		stop()
		in.CloseWithError(err) // nil is the end
	}()
	return out
}
