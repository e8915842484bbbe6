package sources

import (
	"encoding/hex"
	"errors"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a listing. Names beyond them are hidden; a listing beyond maxEntries is an error.
const (
	maxEntries   = 200_000
	maxPath      = 4096
	maxComponent = 255
	maxDepth     = 64
)

var errTooManyEntries = fmt.Errorf("more than %d entries", maxEntries)

// sift sorts entries by path and hides what is refused: names that checkPath refuses, a path that was listed before, a file whose
// path is also a directory (one of dirs, or of another file), sizes below zero. Hashes that are none are dropped. Every source's
// listing passes it.
func sift(entries []Entry, dirNames ...string) ([]Entry, []Hidden) {
	var hidden []Hidden
	hide := func(path, reason string) { hidden = append(hidden, Hidden{Path: printable(path), Reason: reason}) }
	files := make([]Entry, 0, len(entries))
	seen := make(map[string]bool, len(entries))
	dirs := make(map[string]bool)
	for _, d := range dirNames {
		dirs[d] = true
	}
	for _, e := range entries {
		switch err := checkPath(e.Path); {
		case err != nil:
			hide(e.Path, err.Error())
			continue
		case e.Size < 0:
			hide(e.Path, "size is not a number of bytes")
			continue
		case seen[e.Path]:
			hide(e.Path, "listed twice")
			continue
		}
		seen[e.Path] = true
		for d := parent(e.Path); d != ""; d = parent(d) {
			dirs[d] = true
		}
		e.SHA256, e.GitOID = hexOf(e.SHA256, 32), hexOf(e.GitOID, 20)
		files = append(files, e)
	}
	kept := files[:0]
	for _, e := range files {
		if dirs[e.Path] {
			hide(e.Path, "also a directory")
			continue
		}
		kept = append(kept, e)
	}
	sort.Slice(kept, func(i, j int) bool { return kept[i].Path < kept[j].Path })
	sort.SliceStable(hidden, func(i, j int) bool { return hidden[i].Path < hidden[j].Path })
	return kept, hidden
}

// parent is the directory of a clean path, "" at the top.
func parent(p string) string {
	return p[:max(strings.LastIndexByte(p, '/'), 0)]
}

// hexOf is s in lower case if it is n bytes in hex, else "".
func hexOf(s string, n int) string {
	s = strings.ToLower(s)
	if b, err := hex.DecodeString(s); err != nil || len(b) != n {
		return ""
	}
	return s
}

// checkPath says why a path of a listing is refused, nil if it is not: it must be relative, clean, valid UTF-8, without characters
// that are a path in another system or that steer a terminal, and within the limits.
func checkPath(p string) error {
	switch {
	case p == "":
		return errors.New("empty path")
	case len(p) > maxPath:
		return fmt.Errorf("path longer than %d bytes", maxPath)
	case !utf8.ValidString(p) || strings.ContainsRune(p, utf8.RuneError):
		return errors.New("not valid UTF-8")
	case strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/"):
		return errors.New("path begins or ends with a slash")
	case strings.Contains(p, `\`):
		return errors.New("backslash in the path")
	case len(p) > 1 && p[1] == ':' && unicode.IsLetter(rune(p[0])):
		return errors.New("path with a drive letter")
	case strings.ContainsFunc(p, steers):
		return errors.New("control character in the path")
	}
	parts := strings.Split(p, "/")
	if len(parts) > maxDepth {
		return fmt.Errorf("path deeper than %d", maxDepth)
	}
	for _, c := range parts {
		switch {
		case c == "" || c == "." || c == "..":
			return fmt.Errorf("component %q in the path", c)
		case len(c) > maxComponent:
			return fmt.Errorf("component longer than %d bytes", maxComponent)
		}
	}
	return nil
}

// steers reports whether r is a control character, a line or paragraph separator, or one that changes the direction of text.
func steers(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029' || unicode.Is(unicode.Bidi_Control, r)
}

// printable is s fit for a terminal or a log: quoted if any character is not plain, and cut at 256 bytes.
func printable(s string) string {
	const most = 256
	cut := ""
	if len(s) > most {
		s, cut = s[:most], "…"
	}
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return steers(r) || !unicode.IsPrint(r) }) {
		s = strconv.QuoteToASCII(s)
	}
	return s + cut
}
