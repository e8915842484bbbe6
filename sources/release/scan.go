package release

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	"weightfs/sources/safetensors"
)

const maxNesting = 64

// scanner reads JSON text token by token and builds nothing. It accepts what RFC 8259 allows, with valid UTF-8 and no lone surrogates;
// lenient adds the literals NaN, Infinity and -Infinity that Python writes.
type scanner struct {
	b       []byte
	i       int
	lenient bool
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("at byte %d: %s", s.i, fmt.Sprintf(format, args...))
}

// peek is the next byte that is not white space, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return c
		}
	}
	return 0
}

func (s *scanner) expect(c byte) error {
	if s.peek() != c || s.i == len(s.b) {
		return s.fail("expected %q", c)
	}
	s.i++
	return nil
}

// end fails if anything but white space is left.
func (s *scanner) end() error {
	if s.peek(); s.i < len(s.b) {
		return s.fail("text after the end of the value")
	}
	return nil
}

// object takes an object and calls member for each key, which must take the value. The key is valid only until the next call.
func (s *scanner) object(member func(key []byte) error) error {
	if err := s.expect('{'); err != nil {
		return err
	}
	if s.peek() == '}' {
		s.i++
		return nil
	}
	for {
		key, err := s.str()
		if err != nil {
			return err
		}
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := member(key); err != nil {
			return err
		}
		if s.peek() == '}' {
			s.i++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// skip takes any value.
func (s *scanner) skip(depth int) error {
	if depth > maxNesting {
		return s.fail("nested deeper than %d", maxNesting)
	}
	switch s.peek() {
	case '{':
		return s.object(func([]byte) error { return s.skip(depth + 1) })
	case '[':
		return s.array(depth)
	case '"':
		_, err := s.str()
		return err
	}
	return s.scalar()
}

func (s *scanner) array(depth int) error {
	s.i++
	if s.peek() == ']' {
		s.i++
		return nil
	}
	for {
		if err := s.skip(depth + 1); err != nil {
			return err
		}
		if s.peek() == ']' {
			s.i++
			return nil
		}
		if err := s.expect(','); err != nil {
			return err
		}
	}
}

// scalar takes a number or one of the literals.
func (s *scanner) scalar() error {
	start := s.i
	for s.i < len(s.b) && bytes.IndexByte([]byte(" \t\r\n,]}:\"[{"), s.b[s.i]) < 0 {
		s.i++
	}
	switch text := string(s.b[start:s.i]); text {
	case "true", "false", "null":
		return nil
	case "NaN", "Infinity", "-Infinity":
		if s.lenient {
			return nil
		}
	default:
		if isNumber(text) {
			return nil
		}
	}
	s.i = start
	return s.fail("expected a value")
}

// isNumber says whether text is a number of RFC 8259.
func isNumber(text string) bool {
	digits := func() bool {
		n := 0
		for n < len(text) && text[n] >= '0' && text[n] <= '9' {
			n++
		}
		text = text[n:]
		return n > 0
	}
	take := func(set string) bool {
		if text == "" || bytes.IndexByte([]byte(set), text[0]) < 0 {
			return false
		}
		text = text[1:]
		return true
	}
	take("-")
	if !take("0") && !digits() {
		return false
	}
	if take(".") && !digits() {
		return false
	}
	if take("eE") {
		take("+-")
		if !digits() {
			return false
		}
	}
	return text == ""
}

// raw takes any value and is its text.
func (s *scanner) raw(depth int) ([]byte, error) {
	s.peek()
	start := s.i
	if err := s.skip(depth); err != nil {
		return nil, err
	}
	return s.b[start:s.i], nil
}

// str takes a string and is its content: a piece of the text, or memory of its own where there are escapes.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, s.fail("expected a string")
	}
	start, ascii := s.i, true
	for {
		s.i += safetensors.PlainLen(s.b[s.i:])
		if s.i == len(s.b) {
			return nil, s.fail("string does not end")
		}
		switch c := s.b[s.i]; {
		case c == '"':
			text := s.b[start:s.i]
			if !ascii && !utf8.Valid(text) {
				return nil, s.fail("string is not UTF-8")
			}
			s.i++
			return text, nil
		case c == '\\':
			return s.escaped(start)
		case c < 0x20:
			return nil, s.fail("control character in a string")
		}
		s.i, ascii = s.i+1, false
	}
}

// escaped takes the rest of a string that began at start and has an escape at the scanner's place.
func (s *scanner) escaped(start int) ([]byte, error) {
	out := bytes.Clone(s.b[start:s.i])
	for s.i < len(s.b) {
		c := s.b[s.i]
		s.i++
		switch {
		case c == '"':
			if !utf8.Valid(out) {
				return nil, s.fail("string is not UTF-8")
			}
			return out, nil
		case c == '\\':
			var err error
			if out, err = s.escape(out); err != nil {
				return nil, err
			}
		case c < 0x20:
			return nil, s.fail("control character in a string")
		default:
			out = append(out, c)
		}
	}
	return nil, s.fail("string does not end")
}

// escape takes what follows a backslash and appends what it stands for.
func (s *scanner) escape(out []byte) ([]byte, error) {
	if s.i == len(s.b) {
		return nil, s.fail("string does not end")
	}
	c := s.b[s.i]
	s.i++
	if at := bytes.IndexByte([]byte(`"\/bfnrt`), c); at >= 0 {
		return append(out, "\"\\/\b\f\n\r\t"[at]), nil
	}
	if c != 'u' {
		return nil, s.fail("unknown escape")
	}
	r, err := s.hex4()
	if err != nil || !utf16.IsSurrogate(r) {
		return utf8.AppendRune(out, r), err
	}
	if !bytes.HasPrefix(s.b[s.i:], []byte(`\u`)) {
		return nil, s.fail("lone surrogate")
	}
	s.i += 2
	low, err := s.hex4()
	if err != nil {
		return nil, err
	}
	if r = utf16.DecodeRune(r, low); r == utf8.RuneError {
		return nil, s.fail("lone surrogate")
	}
	return utf8.AppendRune(out, r), nil
}

func (s *scanner) hex4() (rune, error) {
	if len(s.b)-s.i < 4 {
		return 0, s.fail("string does not end")
	}
	n, err := strconv.ParseUint(string(s.b[s.i:s.i+4]), 16, 16)
	if err != nil {
		return 0, s.fail("bad \\u escape")
	}
	s.i += 4
	return rune(n), nil
}
