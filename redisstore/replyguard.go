package redisstore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

// The client library trusts the server. It panics, often on a goroutine of its own, after a negative length, after
// a reply without a command, or if a reply is empty where the library needs two values. And it allocates as much
// memory as a length announces. So each connection has a guard between the server and the library. The guard
// follows the commands that are written and the replies that are read, and fails a read before the library sees a
// reply that no Redis would send.

const (
	// maxReplyText bounds the bytes of a text: the largest text is a post of an instance.
	maxReplyText = maxSealed
	// maxReplyBytes bounds the bytes of all texts of a reply: see postedScript.
	maxReplyBytes = 2*maxPosted + 1<<17
	// maxReplyItems bounds the number of values of a reply, at all depths, because the library allocates 40 bytes
	// for each value that the server announces. The topology of a cluster has more values, 16 for a range of slots.
	maxReplyItems    = 1 << 10
	maxSentinelItems = 1 << 14
	maxClusterItems  = 1 << 18
	maxReplyDepth    = 8
	maxReplyLine     = 1 << 14
	// maxWords is how many words of a command, or values of a message, are kept. Each is cut to maxWord bytes.
	maxWords = 3
	maxWord  = 128
)

// replyError is the error of a read if the server does not behave like Redis.
type replyError struct{ problem string }

func (e *replyError) Error() string {
	return "the server does not respond like Redis: " + e.problem + ": check what listens at its address"
}

func notRedis(format string, args ...any) error { return &replyError{fmt.Sprintf(format, args...)} }

// guard is a connection that checks its replies. One goroutine reads, and one writes.
type guard struct {
	net.Conn
	sent  resp // the commands
	reply resp // what the server sends
	fault error

	mu      sync.Mutex
	pending []pending // commands that wait for their replies, in order
	first   int       // index of the next command in pending
	hello3  bool      // RESP3 is in use, in which messages have a type of their own
	pubsub  bool      // SUBSCRIBE or UNSUBSCRIBE was written
	// The last command that was written is UNSUBSCRIBE.
	unsubscribing bool
}

// pending is a command that waits for its reply.
type pending struct {
	command  command
	confirms int // for (un)subscribe, the number of confirmations: one for each channel
}

type command uint8

const (
	anyCommand command = iota
	subscribe
	unsubscribe
	unsubscribed // the PING after UNSUBSCRIBE: its reply ends the confirmations
	cluster
	sentinel
	masterAddress
	role
)

func newGuard(c net.Conn) *guard {
	g := &guard{Conn: c}
	g.sent.maxItems, g.sent.maxText, g.sent.maxBytes = 1<<30, 1<<30, math.MaxInt // commands are trusted
	return g
}

func (g *guard) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n, done, err := g.sent.scan(rest)
		if err != nil {
			return 0, err
		}
		if rest = rest[n:]; done {
			g.note()
		}
	}
	return g.Conn.Write(b)
}

// note adds the command that has been written to pending.
func (g *guard) note() {
	p := pending{confirms: max(1, g.sent.values-1)}
	g.mu.Lock()
	defer g.mu.Unlock()
	after := g.unsubscribing
	g.unsubscribing = false
	switch string(g.sent.word(0)) {
	case "SUBSCRIBE":
		p.command, g.pubsub = subscribe, true
	case "UNSUBSCRIBE":
		p.command, g.pubsub, g.unsubscribing = unsubscribe, true, true
	case "PING":
		if after {
			p.command = unsubscribed
		}
	case "HELLO":
		g.hello3 = g.hello3 || string(g.sent.word(1)) == "3"
	case "CLUSTER":
		p.command = cluster
	case "SENTINEL":
		p.command = sentinel
		if string(g.sent.word(1)) == "GET-MASTER-ADDR-BY-NAME" {
			p.command = masterAddress
		}
	case "ROLE":
		p.command = role
	}
	if g.first > len(g.pending)/2 { // while requests overlap, pending never becomes empty
		g.pending, g.first = append(g.pending[:0], g.pending[g.first:]...), 0
	}
	g.pending = append(g.pending, p)
}

func (g *guard) Read(b []byte) (int, error) {
	if g.fault != nil {
		return 0, g.fault
	}
	n, err := g.Conn.Read(b)
	for rest := b[:n]; len(rest) > 0; {
		if !g.reply.under {
			if g.fault = g.begin(rest[0]); g.fault != nil {
				return 0, g.fault
			}
		}
		read, done, fault := g.reply.scan(rest)
		if fault == nil && done {
			fault = g.end()
		}
		if g.fault = fault; fault != nil {
			return 0, fault
		}
		rest = rest[read:]
	}
	return n, err
}

// begin sets the bounds of a reply with the first byte kind.
func (g *guard) begin(kind byte) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.reply
	r.maxItems, r.maxText, r.maxBytes = maxReplyItems, maxReplyText, maxReplyBytes
	if r.kind = kind; kind == '>' || !r.scalar() && g.pubsub && !g.hello3 {
		return nil // may be a message
	}
	if g.first == len(g.pending) {
		return notRedis("a reply that nothing asked for")
	}
	switch g.pending[g.first].command {
	case sentinel:
		r.maxItems = maxSentinelItems
	case cluster:
		r.maxItems, r.maxText, r.maxBytes = maxClusterItems, 1<<10, 32*maxClusterItems
	}
	return nil
}

// end checks a whole reply against the command that it answers.
func (g *guard) end() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := &g.reply
	pong := string(r.word(0)) == "PONG" && r.scalar() || string(r.word(0)) == "pong" && !r.scalar()
	if r.kind == '>' || !r.scalar() && r.values > 0 && g.pubsub && !g.hello3 && !pong {
		return g.message()
	}
	if g.first == len(g.pending) {
		return notRedis("a reply that nothing asked for")
	}
	fits := true
	switch failed := r.kind == '-'; g.pending[g.first].command {
	case subscribe, unsubscribe:
		fits = failed
	case unsubscribed:
		text := string(r.word(0))
		fits = pong || failed && (strings.HasPrefix(text, "LOADING") || strings.HasPrefix(text, "BUSY") || strings.Contains(text, "'ping'"))
	case masterAddress:
		fits = r.values >= 2 || r.scalar()
	case role:
		fits = r.values >= 1 || r.scalar()
	}
	if !fits {
		return notRedis("an answer to another command")
	}
	g.first++
	return nil
}

// message checks a message of a subscription.
func (g *guard) message() error {
	r := &g.reply
	kind := string(r.word(0))
	if strings.HasSuffix(kind, "subscribe") {
		want := subscribe
		if kind == "unsubscribe" {
			want = unsubscribe
		}
		if g.first == len(g.pending) || g.pending[g.first].command != want {
			return notRedis("a confirmation of %q that nothing asked for", kind)
		}
		if p := &g.pending[g.first]; p.confirms > 1 {
			p.confirms--
		} else {
			g.first++
		}
	}
	// The library expects several words in a Sentinel's message.
	if channel := string(r.word(1)); kind == "message" && channel != "" && strings.ContainsRune("+-", rune(channel[0])) {
		words := 4
		if channel == "+switch-master" {
			words = 5
		}
		if r.spaces+1 < words {
			return notRedis("a message of a Sentinel without an address")
		}
	}
	return nil
}

// resp parses a stream of RESP values, in chunks of any size. It keeps the first words of each value.
type resp struct {
	maxItems, maxText, maxBytes int

	under  bool // a value has begun and not ended
	kind   byte // first byte of the whole value
	values int  // number of values in the whole value, unless that is a scalar
	items  int
	bytes  int
	words  [maxWords][maxWord]byte
	lens   [maxWords]int
	spaces int // number of spaces in the third word of the whole value

	depth int
	left  [maxReplyDepth]int
	at    int // index, in the whole value, of the value that is being read

	state byte
	typ   byte // first byte of the value that is being read
	line  [maxWord]byte
	long  int // length of the line so far
	last  byte
	text  int // bytes of the text that are missing, including its line end
}

const (
	inType = iota
	inLine
	inText
)

func (r *resp) word(i int) []byte { return r.words[i][:r.lens[i]] }

// scalar reports whether the whole value is a single value: not an array, a map, a set or a push message.
func (r *resp) scalar() bool { return r.kind != '*' && r.kind != '%' && r.kind != '~' && r.kind != '>' }

// scan reads until the end of a whole value or of b. It returns the number of bytes read, and whether a whole value
// has ended.
func (r *resp) scan(b []byte) (n int, done bool, err error) {
	for n < len(b) && !done && err == nil {
		switch r.state {
		case inType:
			if !r.under {
				r.under, r.kind, r.values, r.items, r.bytes, r.at, r.spaces = true, b[n], 1, 0, 0, 0, 0
				r.lens = [maxWords]int{}
			}
			r.typ, r.long, r.state = b[n], 0, inLine
			if strings.IndexByte("+-:,(#_$=*%~>", r.typ) < 0 {
				err = notRedis("a value of type %q", r.typ)
			}
			n++
		case inLine:
			part := b[n:]
			end := bytes.IndexByte(part, '\n') + 1
			if end > 0 {
				part = part[:end]
			}
			n += len(part)
			if r.long < maxWord {
				copy(r.line[r.long:], part)
			}
			if r.typ == '-' || r.typ == '+' {
				r.keep(part, r.long)
			}
			if r.long += len(part); r.long > maxReplyLine {
				return n, false, notRedis("a line of more than %d bytes", maxReplyLine)
			}
			if end == 0 {
				r.last = part[len(part)-1]
				continue
			}
			if len(part) > 1 {
				r.last = part[len(part)-2]
			}
			if r.long < 2 || r.last != '\r' {
				return n, false, notRedis("a line that does not end with CRLF")
			}
			r.long -= 2
			r.state = inType
			done, err = r.lineEnd()
		case inText:
			part := b[n:min(len(b), n+r.text)]
			n += len(part)
			r.text -= len(part)
			if text := len(part) - max(0, 2-r.text); text > 0 {
				r.keep(part[:text], r.long)
				r.long += text
			}
			if r.text == 0 {
				r.state = inType
				done = r.ended()
			}
		}
	}
	return n, done, err
}

// keep stores a part of a value's text. at is the offset of the part in the text.
func (r *resp) keep(part []byte, at int) {
	if r.depth > 1 || r.at >= maxWords {
		return
	}
	if r.at == maxWords-1 {
		r.spaces += bytes.Count(part, []byte(" "))
	}
	if at < maxWord {
		r.lens[r.at] = at + copy(r.words[r.at][at:], part)
	}
}

// lineEnd handles the end of a line.
func (r *resp) lineEnd() (done bool, err error) {
	line := r.line[:min(r.long, maxWord)]
	ok := true
	switch r.typ {
	case '+', '-':
		if r.depth <= 1 && r.at < maxWords {
			r.lens[r.at] = min(r.lens[r.at], r.long)
		}
		if r.typ == '-' && (bytes.HasPrefix(line, []byte("MOVED")) || bytes.HasPrefix(line, []byte("ASK"))) {
			ok = bytes.Count(line, []byte(" ")) >= 2
		}
	case ',', '(':
	case ':':
		_, err := strconv.ParseInt(string(line), 10, 64)
		ok = err == nil && line[0] != '+'
	case '#':
		ok = string(line) == "t" || string(line) == "f"
	case '_':
		ok = len(line) == 0
	default:
		return r.length(string(line))
	}
	if !ok {
		return false, notRedis("the value %.60q", string(r.typ)+string(line))
	}
	return r.ended(), nil
}

// length handles the length of a text or a list.
func (r *resp) length(line string) (done bool, err error) {
	if line == "-1" && (r.typ == '$' || r.typ == '*') {
		if r.depth == 0 {
			r.kind = '_'
		}
		return r.ended(), nil
	}
	n, err := strconv.ParseUint(line, 10, 31)
	if err != nil {
		return false, notRedis("the length %.60q", string(r.typ)+line)
	}
	size := int(n)
	if r.typ == '$' || r.typ == '=' {
		if r.bytes += size; size > r.maxText || r.bytes > r.maxBytes {
			return false, notRedis("a text of %d bytes", size)
		}
		r.state, r.text, r.long = inText, size+2, 0
		return false, nil
	}
	if r.typ == '%' {
		size *= 2
	}
	switch r.items += size; {
	case size > r.maxItems || r.items > r.maxItems:
		return false, notRedis("a list of %d values", size)
	case r.depth > 0 && r.typ == '>':
		return false, notRedis("a message within a reply")
	case r.depth == maxReplyDepth:
		return false, notRedis("lists nested deeper than %d", maxReplyDepth)
	}
	if r.depth == 0 {
		r.values = size
	}
	if size == 0 {
		return r.ended(), nil
	}
	r.left[r.depth] = size
	r.depth++
	return false, nil
}

// ended handles the end of a value, and reports whether the whole value has ended.
func (r *resp) ended() bool {
	for r.depth > 0 {
		if r.depth == 1 {
			r.at++
		}
		if r.left[r.depth-1]--; r.left[r.depth-1] > 0 {
			return false
		}
		r.depth--
	}
	r.under = false
	return true
}

// careful is a client that turns panics into errors. The guard prevents these panics on connections of
// [Config.Open], but a client passed to [New] has no guard.
type careful struct{ rueidis.Client }

func (c careful) Do(ctx context.Context, cmd rueidis.Completed) (result rueidis.RedisResult) {
	defer recovered(func(err error) { result = rueidis.NewErrorResult(err) })
	return c.Client.Do(ctx, cmd)
}

func (c careful) DoMulti(ctx context.Context, cmds ...rueidis.Completed) (results []rueidis.RedisResult) {
	defer recovered(func(err error) {
		results = slices.Repeat([]rueidis.RedisResult{rueidis.NewErrorResult(err)}, len(cmds))
	})
	return c.Client.DoMulti(ctx, cmds...)
}

func (c careful) Nodes() map[string]rueidis.Client {
	nodes := c.Client.Nodes()
	for address, node := range nodes {
		nodes[address] = careful{node}
	}
	return nodes
}

func recovered(fail func(error)) {
	if p := recover(); p != nil {
		fail(notRedis("the client library panicked: %v", p))
	}
}
