package tokens

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/sluicehq/sluice/cmd/internal/source"
	"github.com/sluicehq/sluice/policy"
)

// File is a file of tokens.
type File struct {
	Path    string
	NoRoles bool // the lines do not have roles
}

// Read reads the file, and returns the tokens or an error. Without a path, it returns no tokens.
func (f *File) Read() (all []source.TokenRow, err error) {
	if f.Path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(f.Path)
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		text, _, _ := strings.Cut(lines.Text(), "#")
		if strings.TrimSpace(text) == "" {
			continue
		}
		t, err := f.parse(strings.Fields(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", f.Path, n, err)
		}
		all = append(all, t)
	}
	return all, lines.Err()
}

// parse parses the fields of a line. Its errors do not contain the line, which may by mistake contain a token in
// place of the token's hash.
func (f *File) parse(fields []string) (t source.TokenRow, err error) {
	what := "write a name, a role, the SHA-256 of the token in hexadecimal, and optionally when it expires"
	if f.NoRoles {
		what = "write a name, the SHA-256 of the token in hexadecimal, and optionally when it expires"
		fields = slices.Insert(fields, min(1, len(fields)), "")
	}
	if len(fields) != 3 && len(fields) != 4 {
		return t, errors.New(what)
	}
	role, known := source.ParseRole(fields[1])
	if !known && !f.NoRoles {
		return t, errors.New("unknown role: write viewer, operator or admin")
	}
	hash, err := hex.DecodeString(fields[2])
	if t.Name, t.Role = fields[0], role; err != nil || copy(t.Hash[:], hash) != len(hash) || len(hash) != len(t.Hash) {
		return t, errors.New("write the SHA-256 of the token as 64 hexadecimal digits, as printed by printf %s \"$TOKEN\" | sha256sum")
	}
	if len(fields) == 4 {
		t.Until = fields[3]
		if _, err = policy.ParseUntil(t.Until); err != nil {
			return t, errors.New("write the expiry as in 2027-01-31, for the end of that day in UTC, or 2027-01-31T12:00:00Z")
		}
	}
	return t, nil
}
