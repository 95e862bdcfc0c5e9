package command

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/creack/pty"
)

// The output does not depend on how it is split into writes. It contains no control characters that act on a terminal,
// and JSON in it keeps its meaning.
func TestOutput(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain\ttext, ünïcödé 東京 👍\n":  "plain\ttext, ünïcödé 東京 👍\n",
		"\x1b[2J\r\x00\x7f":            `\u001b[2J\u000d\u0000\u007f`,
		"\u009b31m\u0085":              `\u009b31m\u0085`,
		"\x9b31m\xff\xe2\x80":          `\x9b31m\xff\xe2\x80`,
		"\u202eevil\u2066\u200f\u061c": `\u202eevil\u2066\u200f\u061c`,
		"\u2028\u2029\ufeff\u200b":     `\u2028\u2029\ufeff\u200b`,
		"می\u200cخواهم":                "می\u200cخواهم",
		"\U000e0041":                   `\udb40\udc41`,
	} {
		for size := 1; size <= 5; size++ {
			f, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			b := &output{file: f}
			for rest := in + "."; rest != ""; {
				n := min(size, len(rest))
				if written, err := io.WriteString(b, rest[:n]); written != n || err != nil {
					t.Fatal(written, err)
				}
				rest = rest[n:]
			}
			got, err := os.ReadFile(f.Name())
			if err != nil || string(got) != want+"." {
				t.Errorf("%q in pieces of %d gives %q, want %q", in, size, got, want+".")
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if !utf8.ValidString(in) {
			continue
		}
		quoted, _ := json.Marshal(in)
		f, _ := os.Create(filepath.Join(t.TempDir(), "out"))
		_, _ = (&output{file: f}).Write(quoted)
		var read string
		if got, err := os.ReadFile(f.Name()); err != nil || json.Unmarshal(got, &read) != nil || read != in {
			t.Errorf("JSON of %q is read as %q", in, read)
		}
		_ = f.Close()
	}
}

// A terminal that cannot move its cursor is not used as a terminal.
func TestDumbTerminal(t *testing.T) {
	keys, own, err := pty.Open()
	if err != nil {
		t.Skip("no terminals on this system:", err)
	}
	defer keys.Close()
	defer own.Close()
	for _, name := range []string{"xterm", "dumb"} {
		t.Setenv("TERM", name)
		if movable := Terminal(&output{file: own}) != nil; movable != (name == "xterm") || Terminal(own) != nil != movable {
			t.Errorf("TERM=%s: %v", name, movable)
		}
	}
	if Terminal(strings.NewReader("")) != nil {
		t.Error("a reader is a terminal")
	}
}
