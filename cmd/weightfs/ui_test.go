package main

import (
	"errors"
	"testing"
)

// TestOneLine has errors whose words come from elsewhere: nothing of them begins a line or steers a terminal.
func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"tensor \"é 数\" is 5 bytes":    "tensor \"é 数\" is 5 bytes",
		"a\nweightfs: done":            "a weightfs: done",
		"\x1b[2Jx":                     " [2Jx",
		"\u009b31mx":                   " 31mx",
		"\x9b31mx":                     "\ufffd31mx",
		"evil\u202egpj":                "evil gpj",
		"line\u2028para\u2029\u0085\r": "line para   ",
	} {
		if got := failureOf(errors.New(in)).Error; got != want {
			t.Errorf("%q is told as %q, want %q", in, got, want)
		}
	}
}
