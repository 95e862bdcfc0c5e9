package parts

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
)

// Keys is where keys are built, one behind the other: the name of a rule, and behind it "/value" for each part
// of its key, or "/" if it has none. So the key of each rule has a "/", and that of no [sluice.Limiter] has one.
// What the methods return is valid until Reset.
type Keys struct {
	text   []byte
	start  int      // of the key that is being built
	rest   int      // of what it has behind the name of the rule
	count  int      // of its values
	values []string // see Values

	// The value that was added last, and as it is written: rules often share a part.
	value, written string
}

// No value can be one of these: it would be written "%21" or "%2A".
const (
	Shared   = "!" // stands for a part that is missing
	anyValue = "*" // for every value, in an override
)

// Reset forgets all keys, and keeps the memory.
func (k *Keys) Reset() {
	k.text = k.text[:0]
	k.value, k.written = "", ""
}

// Grow makes room for so many more bytes, and values of one key.
func (k *Keys) Grow(bytes, values int) {
	k.text, k.values = slices.Grow(k.text, bytes), slices.Grow(k.values, values)
}

// Cap returns how many bytes there is room for.
func (k *Keys) Cap() int { return cap(k.text) }

// Begin begins a key behind those that are there, with the name of a rule.
func (k *Keys) Begin(start string) {
	k.start = len(k.text)
	k.text = append(k.text, start...)
	k.rest, k.count, k.values = len(k.text), 0, k.values[:0]
}

// Add adds a value to the key.
func (k *Keys) Add(value string) {
	if value == k.value {
		k.AddWritten(k.written)
		return
	}
	from := len(k.text) + len("/")
	k.text = sluice.AppendKeyPart(append(k.text, '/'), value)
	k.value, k.written = value, k.since(from)
	k.count++
}

// AddWritten adds a value that need not be escaped.
func (k *Keys) AddWritten(text string) {
	k.text = append(append(k.text, '/'), text...)
	k.count++
}

// since returns the text from start on. It may be an older copy of it, which does not
// matter: what has been written is not changed before the decision is over.
func (k *Keys) since(start int) string {
	return unsafe.String(unsafe.SliceData(k.text[start:]), len(k.text)-start)
}

// Values returns the values of the key, as they are written in it. Call it before Key and Tenant. Most rules do not
// need the values, so they are found in the key: none contains a "/".
func (k *Keys) Values() []string {
	if len(k.values) == k.count {
		return k.values
	}
	k.values = k.values[:0]
	for rest, more := k.since(k.rest+len("/")), true; more; {
		var value string
		value, rest, more = strings.Cut(rest, "/")
		k.values = append(k.values, value)
	}
	return k.values
}

// Bytes returns the key without a hash tag.
func (k *Keys) Bytes() []byte { return k.text[k.start:] }

// Key returns the key. Unless together is nil, it has a hash tag of these parts, and so has Bytes from then on.
func (k *Keys) Key(together []int) string {
	if together != nil {
		k.tag(together)
	}
	return unsafe.String(&k.text[k.start], len(k.text)-k.start)
}

// tag writes the key once more, behind a hash tag.
func (k *Keys) tag(together []int) {
	start, end, values := k.start, len(k.text), k.Values()
	k.text = append(k.text, '{')
	for i, part := range together {
		if i > 0 {
			k.text = append(k.text, '/')
		}
		k.text = append(k.text, values[part]...)
	}
	k.text = append(k.text, '}')
	k.text = append(k.text, k.text[start:end]...)
	k.start = end
}

// Tenant returns the key of a limit that tenants share, with the first owner parts of this key, and the key of the
// tenant: with the hash tag of together, or else one that puts it beside the limit.
func (k *Keys) Tenant(owner int, together []int) (limit, tenant string) {
	start, end := k.start, k.rest+1 // a name and "/"
	if owner > 0 {
		end--
		for _, v := range k.Values()[:owner] {
			end += len("/") + len(v)
		}
	}
	last := len(k.text)
	if len(together) > 0 {
		tenant = k.Key(together)
		return tenant[:len(tenant)-(last-end)], tenant
	}
	k.text = append(append(append(k.text, '{'), k.text[start:end]...), '}')
	k.text = append(k.text, k.text[start:last]...)
	return k.since(start)[:end-start], k.since(last)
}

// Beside returns a text as a key, behind the hash tag that puts it beside another key.
func (k *Keys) Beside(other string, text []byte) string {
	start := len(k.text)
	if rest, tagged := strings.CutPrefix(other, "{"); tagged {
		other, _, _ = strings.Cut(rest, "}")
	}
	if other != "" {
		k.text = append(append(append(k.text, '{'), other...), '}')
	}
	k.text = append(k.text, text...)
	return k.since(start)
}
