package feed

import (
	"bytes"
	"context"
	"io"
	"slices"

	"github.com/sluicehq/sluice/cmd/internal/replay/accesslog"
)

// cutter reads a file and cuts it into blocks at the ends of lines, and where the format changes.
type cutter struct {
	source *source
	block  int // bytes
	line   int // bytes of the longest line
	format *accesslog.Format

	refuse error // why lines cannot be parsed until the next directive
	carry  []byte
	err    error // the error that ended the reading
}

// run sends the blocks to the channel out in order, and to the channel work for parsing. It returns nil at the end
// of the file, a [brokenError] if the file is damaged, or else the error that ended the reading.
func (c *cutter) run(ctx context.Context, out, work chan<- *block) error {
	text, err := c.source.open()
	if err != nil {
		return err
	}
	defer c.source.shut()
	c.skipBOM(text)
	for c.err == nil || len(c.carry) > 0 {
		b := newBlock()
		b.format, b.refuse = c.format, c.refuse
		c.fill(b, text)
		if len(b.data) == 0 {
			b.drop()
			continue
		}
		select {
		case out <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		select {
		case work <- b:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if c.err == io.EOF {
		return nil
	}
	return c.err
}

// skipBOM skips a byte order mark.
func (c *cutter) skipBOM(text io.Reader) {
	c.carry = make([]byte, len(bom))
	var n int
	n, c.err = readFull(text, c.carry)
	if c.carry = c.carry[:n]; bytes.Equal(c.carry, bom) {
		c.carry = c.carry[:0]
	}
}

// readFull is [io.ReadFull], except that it returns [io.EOF] at the end of a file.
func readFull(r io.Reader, p []byte) (int, error) {
	n, err := io.ReadFull(r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// fill fills b with whole lines, at least one if there is any, and keeps the bytes after them.
func (c *cutter) fill(b *block, text io.Reader) {
	buf := append(b.buf[:0], c.carry...)
	for want := max(c.block, len(buf)); ; {
		if len(buf) < want && c.err == nil {
			buf = slices.Grow(buf, want-len(buf))
			var n int
			n, c.err = readFull(text, buf[len(buf):want])
			buf = buf[:len(buf)+n]
		}
		b.buf = buf
		end := bytes.LastIndexByte(buf, '\n') + 1
		switch {
		case end > 0:
			c.take(b, c.directive(b, buf[:end]))
			return
		case c.err != nil:
			// These bytes are the last line. If the file breaks off, they are only a part of a line.
			if c.err != io.EOF {
				b.refuse = c.err
			}
			c.take(b, len(buf))
			return
		case len(buf) >= c.line+2: // "\r\n"
			c.skip(b, text)
			return
		}
		want = min(2*len(buf), c.line+2)
	}
}

// take makes the first n bytes of the buffer the data of the block, and keeps the rest for the next block.
func (c *cutter) take(b *block, n int) {
	b.data, b.size = b.buf[:n], n
	c.carry = append(c.carry[:0], b.buf[n:]...)
}

// skip skips a line that is too long, except for its beginning.
func (c *cutter) skip(b *block, text io.Reader) {
	b.data, b.size, b.last = b.buf[:min(len(b.buf), shownBytes)], len(b.buf), errLong
	buf := make([]byte, max(c.block, 1<<10))
	c.carry = c.carry[:0]
	for c.err == nil {
		var n int
		n, c.err = readFull(text, buf)
		if end := bytes.IndexByte(buf[:n], '\n') + 1; end > 0 {
			b.size += end
			c.carry = append(c.carry, buf[end:n]...)
			return
		}
		b.size += n
	}
}

// directive returns the index at which lines must be cut, because a directive changes the format of the lines after
// it.
func (c *cutter) directive(b *block, lines []byte) int {
	if c.format == nil || !c.format.Directives() {
		return len(lines)
	}
	for at := 0; ; {
		if lines[at] != '#' {
			next := bytes.Index(lines[at:], []byte("\n#"))
			if next < 0 {
				return len(lines)
			}
			at += next + 1
		}
		end := at + bytes.IndexByte(lines[at:], '\n') + 1
		next, err := c.format.Header(bytes.TrimRight(lines[at:end], "\r\n"))
		switch {
		case err != nil:
			// It would be a guess to parse the next lines with the old format.
			b.last, c.refuse = err, errRefused
			return end
		case next != c.format:
			c.format, c.refuse = next, nil
			return end
		}
		if at = end; at == len(lines) {
			return at
		}
	}
}
