package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/encoding/protowire"
)

// jsonSpeaker speaks the JSON API.
type jsonSpeaker struct {
	wire
	question func(key string) string
}

func byRule(key string) string {
	return `{"rule":"per-key","key":{"header:X-API-Key":"` + key + `"},"cost":1}`
}

func byRequest(key string) string {
	return `{"request":{"method":"GET","host":"api.example","path":"/api/users","headers":{"X-API-Key":"` + key + `"},"client":"192.0.2.1"}}`
}

func speakJSON(question func(key string) string) func(net.Conn) speaker {
	return func(c net.Conn) speaker { return &jsonSpeaker{newWire(c), question} }
}

func (s *jsonSpeaker) ask(key string) {
	body := s.question(key)
	_, _ = fmt.Fprintf(s.w, "POST /v1/check HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

func (s *jsonSpeaker) answer() int64 {
	_, body := s.response()
	_, rest, found := bytes.Cut(body, []byte(`"remaining":`))
	if off := len(body) - len(constantAnswer); off < -16 || off > 16 {
		panic(fmt.Sprintf("the constant answer does not have the size of a real answer: %s", body))
	}
	if !found || !bytes.Contains(body, []byte(`"allowed":true`)) {
		panic(string(body))
	}
	return leading(rest)
}

// response reads a response of HTTP/1.1.
func (w wire) response() (http.Header, []byte) {
	res, err := http.ReadResponse(w.r, nil)
	must(err)
	body, err := io.ReadAll(res.Body)
	must(err)
	if res.StatusCode != http.StatusOK {
		panic(res.Status + " " + string(body))
	}
	return res.Header, body
}

// leading returns the number at the beginning of a text.
func leading(b []byte) int64 {
	n := 0
	for n < len(b) && b[n] >= '0' && b[n] <= '9' {
		n++
	}
	x, err := strconv.ParseInt(string(b[:n]), 10, 64)
	must(err)
	return x
}

// httpSpeaker sends requests through a gateway.
type httpSpeaker struct{ wire }

func speakHTTP(c net.Conn) speaker { return &httpSpeaker{newWire(c)} }

func (s *httpSpeaker) ask(key string) {
	_, _ = s.w.WriteString("GET /api/users HTTP/1.1\r\nHost: bench\r\nX-API-Key: " + key + "\r\n\r\n")
}

func (s *httpSpeaker) answer() int64 {
	header, _ := s.response()
	return leading([]byte(header.Get("X-RateLimit-Remaining")))
}

// respSpeaker speaks the Redis protocol.
type respSpeaker struct {
	wire
	command func(key string) []string
	left    func(reply []string) int64
}

// respCommand makes a command for a key, and finds the remaining units in its reply.
type respCommand struct {
	command func(key string) []string
	left    func(reply []string) int64
}

const throttleLimit = 100_000

var (
	incrCommand = respCommand{
		func(key string) []string { return []string{"INCR", key} },
		func(reply []string) int64 { return doorLimit - integer(reply[0]) },
	}
	// One unit drains in an hour, so none while this runs.
	throttleCommand = respCommand{
		func(key string) []string {
			return []string{"CL.THROTTLE", key, strconv.Itoa(throttleLimit - 1), "1", "3600"}
		},
		func(reply []string) int64 {
			if reply[0] != "0" {
				panic(fmt.Sprint("refused: ", reply))
			}
			return integer(reply[2])
		},
	}
	checkRule = respCommand{
		func(key string) []string { return []string{"SLUICE.CHECK", "per-key", "header:X-API-Key", key} },
		func(reply []string) int64 {
			if reply[1] != "1" || reply[8] != "remaining" {
				panic(fmt.Sprint("refused: ", reply))
			}
			return integer(reply[9])
		},
	}
)

func integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	must(err)
	return n
}

func speakRESP(c respCommand) func(net.Conn) speaker {
	return func(conn net.Conn) speaker { return &respSpeaker{newWire(conn), c.command, c.left} }
}

func (s *respSpeaker) ask(key string) {
	words := s.command(key)
	s.word('*', len(words))
	for _, w := range words {
		s.word('$', len(w))
		_, _ = s.w.WriteString(w)
		_, _ = s.w.WriteString("\r\n")
	}
}

func (s *respSpeaker) word(kind byte, n int) {
	b := s.w.AvailableBuffer()
	b = append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
	_, _ = s.w.Write(b)
}

func (s *respSpeaker) answer() int64 { return s.left(s.reply(nil)) }

// reply reads a reply, and appends its strings to texts, including the strings in nested arrays.
func (s *respSpeaker) reply(texts []string) []string {
	line, err := s.r.ReadSlice('\n')
	must(err)
	kind, rest := line[0], string(line[1:len(line)-2])
	switch kind {
	case ':', '+':
		return append(texts, rest)
	case '$':
		b := make([]byte, integer(rest)+2)
		_, err := io.ReadFull(s.r, b)
		must(err)
		return append(texts, string(b[:len(b)-2]))
	case '*':
		for range integer(rest) {
			texts = s.reply(texts)
		}
		return texts
	}
	panic(string(line))
}

// grpcSpeaker is a client of Envoy's rate limit service that costs little processor time.
type grpcSpeaker struct {
	wire
	framer *http2.Framer
	hpack  *hpack.Encoder
	block  bytes.Buffer
	fields []hpack.HeaderField
	next   uint32           // the stream of the next question
	window int64            // the number of bytes that the server still accepts
	left   map[uint32]int64 // the remaining units, of streams that are open
	text   []byte
}

func speakGRPC(c net.Conn) speaker {
	s := &grpcSpeaker{wire: newWire(c), next: 1, window: 65535, left: map[uint32]int64{}}
	s.hpack = hpack.NewEncoder(&s.block)
	s.framer = http2.NewFramer(s.w, s.r)
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for _, f := range []string{
		":method", "POST", ":scheme", "http", ":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		":authority", "bench", "content-type", "application/grpc", "te", "trailers",
	} {
		if n := len(s.fields); n > 0 && s.fields[n-1].Value == "" {
			s.fields[n-1].Value = f
		} else {
			s.fields = append(s.fields, hpack.HeaderField{Name: f})
		}
	}
	_, _ = s.w.WriteString(http2.ClientPreface)
	must(s.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20}))
	must(s.framer.WriteWindowUpdate(0, 1<<30))
	return s
}

func (s *grpcSpeaker) ask(key string) {
	s.block.Reset()
	for _, f := range s.fields {
		must(s.hpack.WriteField(f))
	}
	entry := appendString(appendString(nil, 1, "user"), 2, key)
	message := appendString(appendString(nil, 1, "bench"), 2, string(appendString(nil, 1, string(entry))))
	s.text = append(binary.BigEndian.AppendUint32(append(s.text[:0], 0), uint32(len(message))), message...)
	must(s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: s.next, BlockFragment: s.block.Bytes(), EndHeaders: true}))
	must(s.framer.WriteData(s.next, true, s.text))
	if s.window -= int64(len(s.text)); s.window < 0 {
		panic("the server's window is used up")
	}
	s.next += 2
}

// appendString appends a field of a protocol buffer.
func appendString(b []byte, field protowire.Number, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func (s *grpcSpeaker) answer() int64 {
	for {
		frame, err := s.framer.ReadFrame()
		must(err)
		switch f := frame.(type) {
		case *http2.DataFrame:
			s.left[f.StreamID] = leftOf(f.Data())
		case *http2.MetaHeadersFrame:
			if !f.StreamEnded() {
				continue
			}
			left, found := s.left[f.StreamID]
			if !found || s.status(f) != "0" {
				panic(fmt.Sprint("no answer: ", f.Fields))
			}
			delete(s.left, f.StreamID)
			return left
		case *http2.SettingsFrame:
			if !f.IsAck() {
				must(s.framer.WriteSettingsAck())
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				must(s.framer.WritePing(true, f.Data))
			}
		case *http2.WindowUpdateFrame:
			if f.StreamID == 0 {
				s.window += int64(f.Increment)
			}
		case *http2.RSTStreamFrame, *http2.GoAwayFrame:
			panic(fmt.Sprint("the server has ended the stream or the connection: ", f))
		}
		if !s.buffered() {
			s.flush()
		}
	}
}

func (s *grpcSpeaker) status(f *http2.MetaHeadersFrame) string {
	for _, h := range f.Fields {
		if h.Name == "grpc-status" {
			return h.Value
		}
	}
	return ""
}

// leftOf reads a response. It uses the fields overall_code (1), and limit_remaining (3) of the first of the
// statuses (2).
func leftOf(message []byte) (left int64) {
	left = -1
	code := uint64(0)
	fieldsOf(message[5:], func(field protowire.Number, n uint64, b []byte) {
		switch field {
		case 1:
			code = n
		case 2:
			fieldsOf(b, func(field protowire.Number, n uint64, _ []byte) {
				if field == 3 {
					left = int64(n)
				}
			})
		}
	})
	if code != 1 {
		panic(fmt.Sprint("code: ", code))
	}
	return left
}

func fieldsOf(b []byte, each func(field protowire.Number, n uint64, b []byte)) {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		b = b[max(n, 0):]
		var number uint64
		var text []byte
		switch kind {
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			text, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		must(protowire.ParseError(min(n, 0)))
		b = b[n:]
		each(field, number, text)
	}
}

// spoeSpeaker speaks SPOE like HAProxy.
type spoeSpeaker struct {
	wire
	frame uint64
	text  []byte
	named bool // questions have an ID
}

func speakSPOE(named bool) func(net.Conn) speaker {
	return func(c net.Conn) speaker { return newSPOE(c, named) }
}

func newSPOE(c net.Conn, named bool) *spoeSpeaker {
	s := &spoeSpeaker{wire: newWire(c), named: named}
	var hello []byte
	hello = spoeString(spoeText(hello, "supported-versions"), "2.0")
	hello = spoeVarint(append(spoeText(hello, "max-frame-size"), 3), 16380)
	hello = spoeString(spoeText(hello, "capabilities"), "pipelining")
	s.send(1, 0, hello)
	s.flush()
	s.receive()
	return s
}

func spoeVarint(b []byte, n uint64) []byte {
	if n < 240 {
		return append(b, byte(n))
	}
	b = append(b, byte(n)|240)
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

func spoeText(b []byte, s string) []byte   { return append(spoeVarint(b, uint64(len(s))), s...) }
func spoeString(b []byte, s string) []byte { return spoeText(append(b, 8), s) }

func (s *spoeSpeaker) send(kind byte, frame uint64, payload []byte) {
	head := spoeVarint(spoeVarint([]byte{kind, 0, 0, 0, 1}, frame), 1)
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(head)+len(payload)))
	_, _ = s.w.Write(length[:])
	_, _ = s.w.Write(head)
	_, _ = s.w.Write(payload)
}

func (s *spoeSpeaker) receive() string {
	var length [4]byte
	_, err := io.ReadFull(s.r, length[:])
	must(err)
	b := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err = io.ReadFull(s.r, b)
	must(err)
	return string(b)
}

func (s *spoeSpeaker) ask(key string) {
	s.frame++
	headers := spoeText(spoeText(spoeText(spoeText(spoeText(spoeText(nil, "host"), "bench"), "x-api-key"), key), ""), "")
	b := append(spoeText(s.text[:0], "request"), 6)
	b = spoeString(spoeText(b, "method"), "GET")
	b = spoeString(spoeText(b, "path"), "/api/users")
	b = append(spoeText(b, "src"), 6, 192, 0, 2, 1)
	b = spoeText(append(spoeText(b, "headers"), 9), string(headers))
	b = append(spoeText(b, "body"), 0)
	id := ""
	if s.named {
		id = fmt.Sprintf("%p-%032d", s, s.frame) // unique, and as long as a UUID
	}
	b = spoeString(spoeText(b, "id"), id)
	s.send(3, s.frame, b)
	s.text = b
}

func (s *spoeSpeaker) answer() int64 {
	frame := s.receive()
	_, rest, found := strings.Cut(frame, "x_ratelimit_remaining")
	if !found || !strings.Contains(frame, "allowed\x11") {
		panic(fmt.Sprintf("refused: %q", frame))
	}
	return leading([]byte(rest[2:])) // after the type and the length
}
