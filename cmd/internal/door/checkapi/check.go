package checkapi

import (
	"net/http"

	"github.com/sluicehq/sluice/policy"
)

// check is one check of a call. It is reused after reset.
type check struct {
	request   policy.Request
	mode      policy.Mode
	described bool   // the check describes a request; otherwise it names a subject of a rule
	target    string // path and query
	body      string
	rule      string
	key       map[string]string
	outcome   policy.Outcome
	place     string // the place to hold or release
	fault     string // the error in the described request, or ""

	header     http.Header                 // memory for request.Header
	attributes map[string]string           // memory for request.Attributes
	read       func(int64) ([]byte, error) // readBody
}

func newCheck() *check {
	c := &check{header: http.Header{}, attributes: map[string]string{}}
	c.read = c.readBody
	return c
}

// reset empties the check, and keeps its memory for reuse. It drops large maps, because maps do not shrink.
func (c *check) reset() {
	header, attributes, read := c.header, c.attributes, c.read
	if len(header) > keptFields {
		header = http.Header{}
	}
	if len(attributes) > keptFields {
		attributes = map[string]string{}
	}
	clear(header)
	clear(attributes)
	*c = check{header: header, attributes: attributes, read: read}
}

const keptFields = 32

func (c *check) readBody(limit int64) ([]byte, error) {
	if int64(len(c.body)) > limit {
		return nil, nil
	}
	return []byte(c.body), nil
}
