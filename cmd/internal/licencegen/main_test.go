package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicehq/sluice/internal/testkit"
)

// A licence that is not allowed is an error, and so is a text that is not a known licence.
func TestIdentify(t *testing.T) {
	ours, err := os.ReadFile(filepath.Join(testkit.Root(), "LICENSE"))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := identify(string(ours)); err != nil || strings.Join(got, " ") != "Apache-2.0" {
		t.Errorf("%q, %v", got, err)
	}
	const gpl = `This program is free software: you can redistribute it and/or modify it under the terms of the
GNU General Public License as published by the Free Software Foundation, either version 3 of the License, or
(at your option) any later version. This program is distributed in the hope that it will be useful, but WITHOUT
ANY WARRANTY; without even the implied warranty of MERCHANTABILITY or FITNESS FOR A PARTICULAR PURPOSE. See the
GNU General Public License for more details.`
	for _, text := range []string{gpl, string(ours) + "\n\n" + gpl, "All rights reserved.", ""} {
		if got, err := identify(text); err == nil {
			t.Errorf("%q: %.60q", got, text)
		}
	}
}
