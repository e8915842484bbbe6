package release

import (
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxNotes is how many notes of one kind are kept in words; more are counted.
const maxNotes = 8

// notes collects sentences of one kind, a few in words and the rest as a number: a hostile file can give reason for millions.
type notes struct {
	kept []string
	more int
}

func (n *notes) add(format string, args ...any) {
	if len(n.kept) == maxNotes {
		n.more++
		return
	}
	n.kept = append(n.kept, fmt.Sprintf(format, args...))
}

// list is the notes, the last one saying how many more of that kind there are.
func (n *notes) list(kind string) []string {
	if n.more == 0 {
		return n.kept
	}
	return append(n.kept, fmt.Sprintf("%d more notes about %s", n.more, kind))
}

// quoted is hostile text for people: in quotes, printable ASCII only, cut at 200 bytes.
func quoted(s string) string {
	const most = 200
	if len(s) <= most {
		return strconv.QuoteToASCII(s)
	}
	cut := most
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.QuoteToASCII(s[:cut]) + "..."
}
