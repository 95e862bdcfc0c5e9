package checkapi

import (
	"net/http"

	"github.com/sluicehq/sluice/policy"
)

// check is one question. It is used again: see reset.
type check struct {
	request   policy.Request
	mode      policy.Mode
	described bool   // the request is: else it is about a rule
	target    string // path and query
	body      string
	rule      string
	key       map[string]string
	outcome   policy.Outcome
	place     string // that is held or released
	fault     string // what is wrong with the request that is described

	header     http.Header                 // memory for request.Header
	attributes map[string]string           // and for request.Attributes
	read       func(int64) ([]byte, error) // readBody
}

func newCheck() *check {
	c := &check{header: http.Header{}, attributes: map[string]string{}}
	c.read = c.readBody
	return c
}

// reset keeps only memory. Maps do not shrink, so large ones are not kept.
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
