package main

import (
	"strings"
	"unicode"
)

// plainText makes a text of somebody else one line that cannot move the cursor, change colours, or
// hide or turn around what stands beside it: what does not show becomes "\uFFFD".
func plainText(s string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
