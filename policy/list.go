package policy

import (
	"encoding/json"
	"errors"
)

// List is addresses and networks, such as "2001:db8::/32": as JSON and YAML an array of them, or
// an object with the name of a file.
type List struct {
	Networks []string
	// File is where they are kept, one on a line, if they are. A document has the name, and is
	// no less data for it: package policyfile reads the file, relative to that of the policy,
	// where it compiles what it has read. A program sets Networks, though there may be none.
	File string
}

// listFile is a List in a file, as JSON.
type listFile struct {
	File string `json:"file"`
}

func (l List) MarshalJSON() ([]byte, error) {
	switch {
	case l.File != "":
		return json.Marshal(listFile{l.File})
	case l.Networks == nil:
		return []byte("[]"), nil
	}
	return json.Marshal(l.Networks)
}

func (l *List) UnmarshalJSON(data []byte) error {
	var f listFile
	var networks []string
	if json.Unmarshal(data, &networks) != nil && json.Unmarshal(data, &f) != nil {
		return errors.New(`policy: a list is an array of networks, or {"file": "networks.txt"}`)
	}
	if len(data) > 0 && data[0] == '{' && f.File == "" {
		return errors.New("policy: the file of a list has no name")
	}
	if len(networks) == 0 {
		networks = nil
	}
	*l = List{networks, f.File}
	return nil
}
