package resp

import "strconv"

// reply collects the replies to a client.
type reply struct {
	text  []byte
	proto int // 2 or 3
}

func (r *reply) line(kind byte, text string) {
	r.text = append(append(append(r.text, kind), text...), "\r\n"...)
}

func (r *reply) number(kind byte, n int64) {
	r.text = append(strconv.AppendInt(append(r.text, kind), n, 10), "\r\n"...)
}

func (r *reply) ok() { r.line('+', "OK") }

func (r *reply) integer(n int64) { r.number(':', n) }

func (r *reply) array(n int) { r.number('*', int64(n)) }

// pairs starts a map of n names and values, which is an array in RESP2.
func (r *reply) pairs(n int) {
	if r.proto < 3 {
		r.array(2 * n)
	} else {
		r.number('%', int64(n))
	}
}

func (r *reply) bulk(text string) {
	r.number('$', int64(len(text)))
	r.text = append(append(r.text, text...), "\r\n"...)
}

func (r *reply) null() {
	if r.proto < 3 {
		r.text = append(r.text, "$-1\r\n"...)
	} else {
		r.text = append(r.text, "_\r\n"...)
	}
}

// fail appends an error. The first word of text is the kind of the error.
func (r *reply) fail(text string) {
	r.text = append(r.text, '-')
	for i := range len(text) {
		c := text[i]
		if c < ' ' {
			c = ' ' // a line break would end the reply
		}
		r.text = append(r.text, c)
	}
	r.text = append(r.text, "\r\n"...)
}

func (r *reply) pair(name string, value int64) {
	r.bulk(name)
	r.integer(value)
}

func (r *reply) textPair(name, value string) {
	r.bulk(name)
	r.bulk(value)
}
