package spoe

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The types of frames.
const (
	haproxyHello      byte = 1
	haproxyDisconnect byte = 2
	notify            byte = 3
	agentHello        byte = 101
	agentDisconnect   byte = 102
	ack               byte = 103
)

const (
	flagFin = 1 // the frame is complete

	frameLength = 4 // bytes before each frame
	minFrame    = 256
	maxFrame    = 64 << 10
	firstBuffer = 4 << 10
	keptBuffer  = 32 << 10
)

// The protocol's codes for the reasons of closing a connection.
const (
	codeNormal      = 0
	codeTimeout     = 2
	codeTooBig      = 3
	codeInvalid     = 4
	codeNoVersion   = 5
	codeNoMaxSize   = 6
	codeUnsupported = 8
	codeBadMaxSize  = 9
	codeFragmented  = 10
)

// fault is the reason for closing a connection.
type fault struct {
	code uint32
	text string
}

func (f *fault) Error() string { return f.text }

// frames splits the data of a connection into frames. Its buffer grows with the bytes that arrive, not with the
// announced length of a frame.
type frames struct {
	from       io.Reader
	buf        []byte
	begin, end int
	most       int // the maximum size of a frame in bytes
}

// next returns the next frame if it has arrived completely, else nil. The frame is valid until the next call of
// fill.
func (f *frames) next() ([]byte, error) {
	there := f.buf[f.begin:f.end]
	if len(there) < frameLength {
		return nil, nil
	}
	n := binary.BigEndian.Uint32(there)
	if uint64(n) > uint64(f.most) {
		return nil, &fault{codeTooBig, fmt.Sprintf("a frame has %d bytes, more than the maximum of %d", n, f.most)}
	}
	if n == 0 {
		return nil, &fault{codeInvalid, "a frame is empty"}
	}
	if len(there) < frameLength+int(n) {
		return nil, nil
	}
	f.begin += frameLength + int(n)
	return there[frameLength : frameLength+int(n)], nil
}

// empty reports whether all data that has arrived was returned as frames.
func (f *frames) empty() bool { return f.begin == f.end }

// fill waits for more bytes.
func (f *frames) fill() error {
	f.makeRoom()
	n, err := f.from.Read(f.buf[f.end:])
	f.end += n
	if n > 0 {
		return nil
	}
	return err
}

func (f *frames) makeRoom() {
	switch {
	case f.empty() && len(f.buf) > keptBuffer, f.buf == nil:
		f.buf = make([]byte, firstBuffer)
		f.begin, f.end = 0, 0
	case f.begin > 0:
		f.end = copy(f.buf, f.buf[f.begin:f.end])
		f.begin = 0
	}
	if f.end == len(f.buf) {
		f.buf = append(f.buf, make([]byte, min(len(f.buf), frameLength+f.most-len(f.buf)))...)
	}
}

// head is the part of a frame before its payload.
type head struct {
	kind          byte
	flags         uint32
	stream, frame uint64
}

func (d *decoder) head() (h head) {
	h.kind = d.byte()
	h.flags = d.uint32()
	h.stream = d.varint()
	h.frame = d.varint()
	return h
}

// beginFrame appends a head, preceded by space for the length, which endFrame fills in.
func beginFrame(dst []byte, h head) []byte {
	dst = append(dst, 0, 0, 0, 0, h.kind, 0, 0, 0, flagFin)
	return appendVarint(appendVarint(dst, h.stream), h.frame)
}

func endFrame(dst []byte, from int) []byte {
	binary.BigEndian.PutUint32(dst[from:], uint32(len(dst)-from-frameLength))
	return dst
}

func appendStringPair(dst []byte, name, text string) []byte {
	return appendText(append(appendText(dst, name), typeString), text)
}

func appendNumberPair(dst []byte, name string, n uint32) []byte {
	return appendVarint(append(appendText(dst, name), typeUint32), uint64(n))
}

func appendDisconnect(dst []byte, f fault) []byte {
	from := len(dst)
	dst = beginFrame(dst, head{kind: agentDisconnect})
	dst = appendNumberPair(dst, "status-code", f.code)
	return endFrame(appendStringPair(dst, "message", f.text), from)
}

func appendHello(dst []byte, size int) []byte {
	from := len(dst)
	dst = beginFrame(dst, head{kind: agentHello})
	dst = appendStringPair(dst, "version", "2.0")
	dst = appendNumberPair(dst, "max-frame-size", uint32(size))
	return endFrame(appendStringPair(dst, "capabilities", "pipelining"), from)
}
