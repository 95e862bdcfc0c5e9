package histories

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sluicehq/sluice/cmd/internal/door"
	"github.com/sluicehq/sluice/cmd/internal/door/resp"
	"github.com/sluicehq/sluice/cmd/internal/door/spoe"
	"github.com/sluicehq/sluice/internal/testkit"
)

// openRESP asks about the policy's only rule in the protocol of Redis.
func openRESP(p *player) func(*ongoing) {
	network := testkit.NewPipes()
	server := resp.New(resp.Config{Config: door.Config{Engine: p.engine, Logger: silent()}, Patience: time.Hour, Idle: 1000 * time.Hour})
	go func() { _ = server.Serve(network) }()
	p.Cleanup(func() { _ = server.Close() })
	conn, err := network.Dial(p.Context(), "", "")
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = conn.Close() })
	replies := bufio.NewReader(conn)
	commands := map[string]string{"": "SLUICE.CHECK", "peek": "SLUICE.PEEK"}
	return func(o *ongoing) {
		if o.mode == "refund" || o.holds || o.response != nil {
			p.cannot("it only checks and peeks")
		}
		rule, key := p.onlyRule(o)
		args := []string{commands[o.mode], rule}
		for part, value := range key {
			args = append(args, part, value)
		}
		if o.cost > 0 {
			args = append(args, "COST", strconv.FormatInt(o.cost, 10))
		}
		if o.id != "" {
			args = append(args, "ID", o.id)
		}
		text := fmt.Sprintf("*%d\r\n", len(args))
		for _, a := range args {
			text += fmt.Sprintf("$%d\r\n%s\r\n", len(a), a)
		}
		if _, err := io.WriteString(conn, text); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
		reply, err := readReply(replies)
		fields, isList := reply.([]any)
		if err != nil || !isList {
			p.Fatalf("%s: %v, %v", p.at, reply, err)
		}
		o.got = readCheckReply(fields)
	}
}

// readReply returns a reply of RESP2 as a string, a number or a list.
func readReply(r *bufio.Reader) (any, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	text := strings.TrimSuffix(line[1:], "\r\n")
	switch line[0] {
	case ':':
		return strconv.ParseInt(text, 10, 64)
	case '$':
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			return "", err
		}
		b := make([]byte, n+2)
		_, err = io.ReadFull(r, b)
		return string(b[:n]), err
	case '*':
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		all := make([]any, n)
		for i := range all {
			if all[i], err = readReply(r); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return line, nil
}

// readCheckReply parses a reply to SLUICE.CHECK, which is a list of names and values.
func readCheckReply(pairs []any) (v verdict) {
	fields := make(map[string]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		fields[pairs[i].(string)] = pairs[i+1]
	}
	v.status = map[any]int{"": 200, "limit": 429, "blocked": 403, "unavailable": 503, "malformed": 400}[fields["reason"]]
	v.delay = time.Duration(fields["delay_ms"].(int64)) * time.Millisecond
	v.retry = seconds(fields["retry_after"].(int64))
	for _, one := range fields["limits"].([]any) {
		limit := one.([]any) // its name, allowed, limit, remaining
		v.left = append(v.left, left{name: limit[0].(string), units: limit[3].(int64)})
	}
	return v
}

// openSPOE asks as HAProxy does, with frames made according to the description of the protocol.
func openSPOE(p *player) func(*ongoing) {
	network := testkit.NewPipes()
	agent := spoe.New(door.Config{Engine: p.engine, Logger: silent()})
	go func() { _ = agent.Serve(network) }()
	p.Cleanup(func() { _ = agent.Close() })
	exchange := func(conn net.Conn, kind byte, stream uint64, payload string) string {
		head := append([]byte{kind, 0, 0, 0, 1}, spoeNumber(stream)...)
		frame := string(append(head, spoeNumber(min(stream, 1))...)) + payload
		if _, err := conn.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
		var size [4]byte
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
		answer := make([]byte, binary.BigEndian.Uint32(size[:]))
		if _, err := io.ReadFull(conn, answer); err != nil {
			p.Fatalf("%s: %v", p.at, err)
		}
		return string(answer)
	}
	const haproxyHello, notify = 1, 3
	hello := spoeText("supported-versions") + "\x08" + spoeText("2.0") + spoeText("max-frame-size") + "\x03" +
		string(spoeNumber(16380)) + spoeText("capabilities") + "\x08" + spoeText("pipelining")
	return func(o *ongoing) {
		if o.mode != "" || o.holds || o.response != nil {
			p.cannot("requests are only charged")
		}
		var fields strings.Builder
		for name, values := range o.fields() {
			for _, v := range values {
				fields.WriteString(spoeText(strings.ToLower(name)) + spoeText(v))
			}
		}
		if o.body != "" {
			fields.WriteString(spoeText("content-length") + spoeText(strconv.Itoa(len(o.body))))
		}
		fields.WriteString("\x00\x00")
		address := netip.MustParseAddr(o.client)
		kind := map[bool]string{true: "\x06", false: "\x07"}[address.Is4()]
		args := []string{
			spoeText("method") + "\x08" + spoeText(o.method), spoeText("path") + "\x08" + spoeText(o.path),
			spoeText("src") + kind + string(address.AsSlice()), spoeText("headers") + "\x09" + spoeText(fields.String()),
			spoeText("body") + "\x09" + spoeText(o.body), spoeText("wait") + "\x03" + string(spoeNumber(60_000)),
		}
		if o.id != "" {
			args = append(args, spoeText("id")+"\x08"+spoeText(o.id))
		}
		conn, err := network.Dial(p.Context(), "", "")
		if err != nil {
			p.Fatal(err)
		}
		defer conn.Close()
		exchange(conn, haproxyHello, 0, hello)
		answer := exchange(conn, notify, 7, spoeText("request")+string(rune(len(args)))+strings.Join(args, ""))
		o.got = p.readSPOE(answer)
	}
}

// readSPOE reads the variables that an answer sets. A variable for a header field has the field's name with
// underscores.
func (p *player) readSPOE(answer string) verdict {
	answer = answer[7:] // kind, flags, stream and frame
	h, status := make(http.Header), 0
	for answer != "" {
		answer = answer[3:] // the action set-var with three arguments, in the scope of the transaction
		var name, value string
		name, answer = cutSPOEText(answer)
		kind := answer[0]
		answer = answer[1:]
		switch {
		case kind == 8:
			value, answer = cutSPOEText(answer)
			h.Set(strings.ReplaceAll(name, "_", "-"), value)
		case kind&15 == 1: // a boolean
		default:
			var n uint64
			if n, answer = cutSPOENumber(answer); name == "status" {
				status = int(n)
			}
		}
	}
	return p.readFields(status, h)
}

// spoeNumber encodes a number for SPOE: from 240 on, the rest is in groups of seven bits.
func spoeNumber(n uint64) []byte {
	if n < 240 {
		return []byte{byte(n)}
	}
	b := []byte{byte(n) | 240}
	for n = (n - 240) >> 4; n >= 128; n = (n - 128) >> 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

func spoeText(s string) string { return string(spoeNumber(uint64(len(s)))) + s }

func cutSPOENumber(s string) (n uint64, rest string) {
	n, s = uint64(s[0]), s[1:]
	if n < 240 {
		return n, s
	}
	for shift := 4; ; shift += 7 {
		b := s[0]
		s = s[1:]
		if n += uint64(b) << shift; b < 128 {
			return n, s
		}
	}
}

func cutSPOEText(s string) (text, rest string) {
	n, s := cutSPOENumber(s)
	return s[:n], s[n:]
}
