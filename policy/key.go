package policy

import (
	"unsafe"

	"github.com/sluicehq/sluice"
)

// keyText is where keys are built, those of requests, of overrides and of administration: the
// name of a rule, and behind it "/value" for each part of its key, or "/" if it has none. So the
// key of each rule has a "/", and that of no [sluice.Limiter] has one.
type keyText struct {
	text   []byte
	values []string // of the key that is being built, as they are written
	start  int      // of that key
	rest   int      // of what it has behind the name of the rule

	// The value that was added last, and as it is written: rules often share a part.
	value, written string
}

// No value can be one of these: it would be written "%21" or "%2A".
const (
	sharedValue = "!" // stands for a part that is missing
	anyValue    = "*" // for every value, in an override
)

func (k *keyText) reset() {
	k.text = k.text[:0]
	k.value, k.written = "", ""
}

// begin begins a key behind those that are there: see rule.keyStart.
func (k *keyText) begin(start string) {
	k.start = len(k.text)
	k.text = append(k.text, start...)
	k.rest = len(k.text)
	k.values = k.values[:0]
}

func (k *keyText) add(value string) {
	if value == k.value {
		k.addWritten(k.written)
		return
	}
	from := k.slash()
	k.text = sluice.AppendKeyPart(k.text, value)
	k.value, k.written = value, k.since(from)
	k.values = append(k.values, k.written)
}

func (k *keyText) addShared() { k.addWritten(sharedValue) }
func (k *keyText) addAny()    { k.addWritten(anyValue) }

// addWritten adds what need not be escaped.
func (k *keyText) addWritten(text string) {
	k.slash()
	k.text = append(k.text, text...)
	k.values = append(k.values, text)
}

func (k *keyText) slash() int {
	k.text = append(k.text, '/')
	return len(k.text)
}

// since returns the text from start on. It may be an older copy of it, which does not
// matter: what has been written is not changed before the decision is over.
func (k *keyText) since(start int) string {
	return unsafe.String(unsafe.SliceData(k.text[start:]), len(k.text)-start)
}

// subject returns what the key has behind the name of the rule.
func (k *keyText) subject() []byte { return k.text[k.rest:] }

// general returns subject with "*" for the values that exact has no bit for. It is only valid
// until the key goes on.
func (k *keyText) general(exact uint32) []byte {
	if exact == 1<<len(k.values)-1 {
		return k.subject()
	}
	return k.rewritten(exact, -1, nil)
}

// rewritten is general with a text in place of the value of one part.
func (k *keyText) rewritten(exact uint32, part int, text []byte) []byte {
	end := len(k.text)
	for i, v := range k.values {
		k.text = append(k.text, '/')
		switch {
		case i == part:
			k.text = append(k.text, text...)
		case exact&(1<<i) == 0:
			k.text = append(k.text, anyValue...)
		default:
			k.text = append(k.text, v...)
		}
	}
	general := k.text[end:]
	k.text = k.text[:end]
	return general
}

// key returns the key. With together it is written once more, behind a hash tag of these parts.
func (k *keyText) key(together []int) string {
	if len(together) == 0 {
		return k.since(k.start)
	}
	return k.tagged(together)
}

func (k *keyText) tagged(together []int) string {
	start, end := k.start, len(k.text)
	k.text = append(k.text, '{')
	for i, part := range together {
		if i > 0 {
			k.text = append(k.text, '/')
		}
		k.text = append(k.text, k.values[part]...)
	}
	k.text = append(k.text, '}')
	k.text = append(k.text, k.text[start:end]...)
	return k.since(end)
}
