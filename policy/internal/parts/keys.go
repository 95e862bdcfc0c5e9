package parts

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/sluicehq/sluice"
)

// Keys builds keys one after the other in the same memory. A key is the name of a rule, followed by "/value" for
// each part of the rule's key, or by "/" if that key has no parts. A limit of a caller has "/" before its name. So
// every key of a rule has a "/", and no key of a [sluice.Limiter] has one. Results of the methods are valid until
// Reset.
type Keys struct {
	text   []byte
	start  int      // the start of the current key
	rest   int      // the end of the rule's name in the current key
	count  int      // the number of values in the current key
	values []string // see Values

	// The field value is the value that was added last, and written is its written form. They are kept because
	// rules often share a part.
	value, written string
}

// These texts differ from all written values, in which "!" and "*" are "%21" and "%2A".
const (
	Shared   = "!" // stands for a value that the request lacks
	anyValue = "*" // stands for every value, in an override
)

// Reset removes all keys, and keeps the memory.
func (k *Keys) Reset() {
	k.text = k.text[:0]
	k.value, k.written = "", ""
}

// Grow makes room for more bytes, and for the values of one key.
func (k *Keys) Grow(bytes, values int) {
	k.text, k.values = slices.Grow(k.text, bytes), slices.Grow(k.values, values)
}

// Cap returns the capacity in bytes.
func (k *Keys) Cap() int { return cap(k.text) }

// Begin starts a new key after the existing ones, with the name of a rule.
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

// AddWritten adds a value that is already escaped, or needs no escapes.
func (k *Keys) AddWritten(text string) {
	k.text = append(append(k.text, '/'), text...)
	k.count++
}

// since returns the text that begins at the index start. If k.text grows later, the result stays in an older copy.
// This does no harm, because written text does not change before the decision is over.
func (k *Keys) since(start int) string {
	return unsafe.String(unsafe.SliceData(k.text[start:]), len(k.text)-start)
}

// Values returns the values of the key in their written form. Call it before Key and Tenant. Most rules do not need
// the values, so Values finds them in the text of the key. No value contains a "/" there.
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

// Bytes returns the current key. The key has no hash tag until Key or Tenant adds one.
func (k *Keys) Bytes() []byte { return k.text[k.start:] }

// Key returns the key. If the parameter together is not nil, Key first adds a hash tag of the parts with the indexes
// in together.
func (k *Keys) Key(together []int) string {
	if together != nil {
		k.tag(together)
	}
	return unsafe.String(&k.text[k.start], len(k.text)-k.start)
}

// tag writes the key once more, after a hash tag.
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

// Tenant returns the key of a limit that tenants share, and the key of a tenant. The key of the limit has the first
// values of the tenant's key; the parameter owner is their number. If the parameter together is not empty, both keys
// have a hash tag of the parts with the indexes in together. Otherwise, the tenant's key has a hash tag that puts it
// into the same cluster slot as the limit.
func (k *Keys) Tenant(owner int, together []int) (limit, tenant string) {
	start, end := k.start, k.rest+1 // start of the name, and end of the "/" after it
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

// Beside returns a key that consists of a hash tag and the given text. The hash tag puts the key into the same
// cluster slot as the key other.
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
