package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestBarLine: what is said after the progress bar stands on the next line of the terminal, also after one that was cut off, or never shown.
func TestBarLine(t *testing.T) {
	for added, lines := range map[int64]int{0: 0, 40: 1, 100: 1} {
		near, far := terminal(t)
		u := &ui{err: far}
		bar := u.bar(100, false)
		for range added / 20 {
			bar.Add64(20)
		}
		bar.Exit()
		bar.Exit()
		u.notef("done")
		far.Close()
		out, _ := io.ReadAll(near) // the error says that the other side is closed
		shown, ok := strings.CutSuffix(string(out), "weightfs: done\r\n")
		if !ok || strings.Count(shown, "\n") != lines || lines > 0 && !(strings.Contains(shown, "%") && strings.HasSuffix(shown, "\r\n")) {
			t.Errorf("%d of 100: %q", added, out)
		}
	}
}

// terminal is both sides of a terminal: what is written to far is read from near.
func terminal(t *testing.T) (near, far *os.File) {
	t.Helper()
	near, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { near.Close() })
	fd := int(near.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		far, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { far.Close() })
	return near, far
}

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
