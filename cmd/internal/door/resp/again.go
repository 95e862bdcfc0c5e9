package resp

import "bytes"

// last is the last CL.THROTTLE of a connection. Most say what the one before has said, but for the
// key, and are known by their bytes before and behind it: reading them takes a third of the time
// that it takes to read all their numbers.
type last struct {
	before, behind []byte // its bytes around the key; empty if it is not known
	limit          *limit
	quantity       int64
}

// maxLast is the most bytes around a key that are kept.
const maxLast = 128

// note notes a CL.THROTTLE, by all its bytes.
func (l *last) note(command []byte, by *limit, quantity int64) {
	l.before, l.behind = l.before[:0], l.behind[:0]
	if command[0] != '*' {
		return
	}
	// That these are whole is known.
	_, at, _ := number(command, 1, maxArgs, nil, nil)
	_, at, _ = bulk(command, at)
	_, end, _ := bulk(command, at)
	if at+len(command)-end > maxLast {
		return
	}
	l.before, l.behind = append(l.before, command[:at]...), append(l.behind, command[end:]...)
	l.limit, l.quantity = by, quantity
}

// again runs the command that buf begins with if it is the last one with any key, and returns its
// length; 0 if it has to be read.
func (c *conn) again(buf []byte) int {
	l := &c.last
	if len(l.before) == 0 || !c.permitted || !bytes.HasPrefix(buf, l.before) {
		return 0
	}
	key, end, err := bulk(buf, len(l.before))
	if end == 0 || err != nil || !bytes.HasPrefix(buf[end:], l.behind) || end+len(l.behind) > maxCommand {
		return 0
	}
	c.throttleBy(l.limit, key, l.quantity)
	return end + len(l.behind)
}
