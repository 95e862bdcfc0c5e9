package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/sluicehq/sluice/cmd/internal/command"
)

// destination is the format and the file of an output. The file "" is standard output.
type destination struct{ format, file string }

// destinationOf parses --output: a format, or a file name with the extension of a format. The parameter formats has
// the format for each format name and extension. The parameter valid describes the valid values in errors.
func destinationOf(output string, formats map[string]string, valid string) (destination, error) {
	if format, ok := formats[output]; ok {
		return destination{format: format}, nil
	}
	if format, ok := formats[filepath.Ext(output)]; ok {
		return destination{format, output}, nil
	}
	return destination{}, fmt.Errorf("--output %.60q: write %s", output, valid)
}

// write calls print with a writer for the destination, which may be standard output.
func (d destination) write(stdout io.Writer, print func(io.Writer) error) error {
	if d.file == "" {
		return command.Failed(print(stdout))
	}
	f, err := os.Create(d.file)
	if err != nil {
		return command.Failed(err)
	}
	return command.Failed(errors.Join(print(f), f.Close()))
}

func writeJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
