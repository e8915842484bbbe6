package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"

	"weightfs/fs/plan"
	"weightfs/sources"
	"weightfs/sources/release"
	"weightfs/transform"
)

// Exit codes; SEMANTICS.md and "weightfs help" promise them.
const (
	exitOK       = 0
	exitFailure  = 1
	exitUsage    = 2
	exitNotFound = 3
	exitDenied   = 4
	exitInexact  = 5
	exitCorrupt  = 6
	exitMount    = 32 // of mount.weightfs, as mount(8) has it
)

// ui is the program's voice: what goes to people, in one place.
type ui struct {
	in       io.Reader
	out, err io.Writer
	json     bool // --json
}

func (u *ui) printf(format string, args ...any) { fmt.Fprintf(u.out, format, args...) }

// notef tells people something on stderr, where it does not disturb what is piped.
func (u *ui) notef(format string, args ...any) { fmt.Fprintf(u.err, "weightfs: "+format+"\n", args...) }

// counted is a number of things for people.
func counted(n int, thing string) string { return english.Plural(n, thing, "") }

// table prints rows of cells in columns.
func (u *ui) table(rows [][]string) error {
	w := tabwriter.NewWriter(u.out, 0, 0, 2, ' ', 0)
	for _, r := range rows {
		fmt.Fprintln(w, strings.Join(r, "\t"))
	}
	return w.Flush()
}

// printJSON prints v, indented.
func (u *ui) printJSON(v any) error {
	b, err := indentedJSON(v)
	if err != nil {
		return err
	}
	_, err = u.out.Write(b)
	return err
}

func indentedJSON(v any) ([]byte, error) { return encodeJSON(v, "  ") }

// encodeJSON is JSON in ASCII, so that names from a release cannot steer a terminal.
func encodeJSON(v any, indent string) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", indent)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	var out []byte
	for _, r := range b.String() {
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r < 0x10000:
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		}
	}
	return out, nil
}

// printLine prints v as one line of JSON.
func (u *ui) printLine(v any) error {
	b, err := encodeJSON(v, "")
	if err != nil {
		return err
	}
	_, err = u.out.Write(b)
	return err
}

// end reports how a command ended and returns the exit code.
func (u *ui) end(err error) int {
	f := failureOf(err)
	switch {
	case err == nil:
	case u.json:
		b, _ := encodeJSON(f, "") // strings and a number
		u.err.Write(b)
	default:
		u.notef("%s", f.Error)
		if f.Hint != "" {
			u.notef("hint: %s", f.Hint)
		}
	}
	return f.Exit
}

// failure is an error as --json prints it and as a daemon reports it to the process that waits for it.
type failure struct {
	Error string `json:"error"`
	Hint  string `json:"hint,omitempty"`
	Exit  int    `json:"exit"`
}

func failureOf(err error) failure {
	if err == nil {
		return failure{Exit: exitOK}
	}
	return failure{Error: oneLine(err.Error()), Hint: hint(err), Exit: exitCode(err)}
}

// usageError is a wrong use of the command line.
type usageError struct{ text, hint string }

func (e usageError) Error() string { return e.text }

// hinted adds a remedy to an error.
type hinted struct {
	error
	hint string
}

func (e hinted) Unwrap() error { return e.error }

// reported is a failure that another process had: its words and exit code are passed on.
type reported struct{ failure }

func (e reported) Error() string { return e.failure.Error }

// exitCode is the one map from errors to exit codes.
func exitCode(err error) int {
	var usage usageError
	var absent *transform.Absent
	var other reported
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &other):
		return other.Exit
	case errors.As(err, &usage):
		return exitUsage
	case errors.Is(err, release.ErrBadRelease):
		return exitCorrupt
	case errors.As(err, &absent):
		return exitInexact
	case errors.Is(err, sources.ErrNotFound):
		return exitNotFound
	case errors.Is(err, sources.ErrDenied):
		return exitDenied
	case errors.Is(err, sources.ErrCorrupt), errors.Is(err, plan.ErrBadInput):
		return exitCorrupt
	case thisMachine(err):
		return exitFailure
	case errors.Is(err, fs.ErrNotExist):
		return exitNotFound
	case errors.Is(err, fs.ErrPermission):
		return exitDenied
	}
	return exitFailure
}

// thisMachine reports whether a system call on something of this machine failed: the cache directory, DEST, /dev/fuse, a port. What is not found
// or not permitted there is neither a SOURCE nor a path of its tree.
func thisMachine(err error) bool {
	var file *fs.PathError
	var link *os.LinkError
	var call *os.SyscallError
	return errors.As(err, &file) || errors.As(err, &link) || errors.As(err, &call)
}

// flagFile is the content of a file that a flag names.
func flagFile(flag, name string) ([]byte, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		err = usageError{fmt.Sprintf("--%s: %v", flag, err), "name a file that is there and can be read"}
	}
	return text, err
}

// hint is the remedy for an error, "" if there is none or the error names it itself.
func hint(err error) string {
	var usage usageError
	var h hinted
	var other reported
	switch {
	case errors.As(err, &other):
		return other.Hint
	case errors.As(err, &usage):
		return usage.hint
	case errors.As(err, &h):
		return h.hint
	case errors.Is(err, context.Canceled):
		return ""
	case errors.Is(err, sources.ErrOffline):
		return "weightfs warm SOURCE [GLOB] with a network fetches what is missing; without --offline and HF_HUB_OFFLINE it is fetched when it is read"
	case errors.Is(err, sources.ErrChanged):
		return "the files changed while they were used; start again to take them as they are now"
	}
	return ""
}

// oneLine keeps what comes from elsewhere from looking like lines of our own and from steering a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}

// size is a number of bytes for people.
func size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// sizeFlag is a flag's number of bytes: "20GB", "512MiB", "4096".
type sizeFlag int64

func (s *sizeFlag) String() string {
	if *s == 0 {
		return ""
	}
	return size(int64(*s))
}

func (s *sizeFlag) Set(text string) error {
	n, err := humanize.ParseBytes(text)
	if err != nil || n == 0 || n > 1<<62 {
		return fmt.Errorf("%q is not a size like 20GB or 512MiB", text)
	}
	*s = sizeFlag(n)
	return nil
}

func (*sizeFlag) Type() string { return "SIZE" }

// onErrorFlag is how long a read waits for a source that fails for the moment; 0 is the default.
type onErrorFlag time.Duration

// hardWait is for ever: longer than any machine runs.
const hardWait = 100 * 365 * 24 * time.Hour

func (d *onErrorFlag) String() string {
	switch time.Duration(*d) {
	case 0:
		return ""
	case hardWait:
		return "hard"
	}
	return "soft:" + time.Duration(*d).String()
}

func (d *onErrorFlag) Set(text string) error {
	if text == "hard" {
		*d = onErrorFlag(hardWait)
		return nil
	}
	wait, ok := strings.CutPrefix(text, "soft:")
	n, err := time.ParseDuration(wait)
	if !ok || err != nil || n < time.Second || n > hardWait {
		return fmt.Errorf("%q is neither hard nor a time like soft:60s, at least soft:1s", text)
	}
	*d = onErrorFlag(n)
	return nil
}

func (*onErrorFlag) Type() string { return "soft:TIME|hard" }
