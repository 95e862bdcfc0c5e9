package policyfile

import (
	"errors"

	"go.yaml.in/yaml/v3"

	"github.com/sluicehq/sluice/internal/jsonnode"
)

// parseJSON returns the JSON value in data as the nodes that the YAML parser would make, or nil after a problem.
func (d *decoder) parseJSON(data []byte) *yaml.Node {
	root, err := jsonnode.Read(data)
	if wrong := new(jsonnode.Error); errors.As(err, &wrong) {
		d.fail(wrong.Line, wrong.Hint, "%s", wrong.Message)
	}
	return root
}
