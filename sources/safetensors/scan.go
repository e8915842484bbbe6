package safetensors

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads strict JSON (RFC 8259) tokens from b at i.
type scanner struct {
	b   []byte
	i   int
	buf []byte // holds the last string that had escapes
}

func (s *scanner) fail(format string, args ...any) error {
	return fmt.Errorf("%w: %s at byte %d of the JSON", ErrHeaderJSON, fmt.Sprintf(format, args...), s.i)
}

func (s *scanner) duplicate(what string) error {
	return fmt.Errorf("%w: %s before byte %d of the JSON", ErrDuplicate, what, s.i)
}

// peek skips white space and is the next byte, 0 at the end. (A NUL byte is never legal where peek looks.)
func (s *scanner) peek() byte {
	for ; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case ' ', '\t', '\n', '\r':
		default:
			return s.b[s.i]
		}
	}
	return 0
}

// expect takes the byte c after white space.
func (s *scanner) expect(c byte) error {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return nil
	}
	return s.expectLater(c)
}

func (s *scanner) expectLater(c byte) error {
	if got := s.peek(); got != c {
		if s.i == len(s.b) {
			return s.fail("end of header instead of %q", c)
		}
		return s.fail("%q instead of %q", got, c)
	}
	s.i++
	return nil
}

// more takes the comma or the closing byte after a member and says whether another member follows.
func (s *scanner) more(end byte) (bool, error) {
	if s.i < len(s.b) && s.b[s.i] == ',' || s.peek() == ',' {
		s.i++
		return true, nil
	}
	return false, s.expect(end)
}

// empty takes the closing byte of an object or array without members.
func (s *scanner) empty(end byte) bool {
	if s.peek() != end {
		return false
	}
	s.i++
	return true
}

const (
	swarOnes = 0x0101010101010101
	swarHigh = 0x8080808080808080
)

// special marks, with its high bit, the first byte of w that is a quote, a backslash, a control character or not ASCII. Bytes
// above the first may be marked wrongly.
func special(w uint64) uint64 {
	q := w ^ '"'*swarOnes
	e := w ^ '\\'*swarOnes
	return ((q-swarOnes)&^q | (e-swarOnes)&^e | (w-' '*swarOnes)&^w | w) & swarHigh
}

// PlainLen is how many bytes at the beginning of b stand for themselves inside a JSON string: ASCII without quotes, backslashes and
// control characters.
func PlainLen(b []byte) int {
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		if m := special(binary.LittleEndian.Uint64(b[i:])); m != 0 {
			return i + bits.TrailingZeros64(m)/8
		}
	}
	for i < len(b) && b[i] >= ' ' && b[i] < utf8.RuneSelf && b[i] != '"' && b[i] != '\\' {
		i++
	}
	return i
}

// str takes a string. The result is valid UTF-8 and stands until the next call.
func (s *scanner) str() ([]byte, error) {
	if err := s.expect('"'); err != nil {
		return nil, err
	}
	start, b := s.i, s.b
	i := start + PlainLen(b[start:])
	if i == len(b) {
		s.i = i
		return nil, s.fail("end of header in a string")
	}
	switch c := b[i]; {
	case c == '"':
		s.i = i + 1
		return b[start:i], nil
	case c == '\\' || c >= utf8.RuneSelf:
		return s.slowStr(start, i)
	default:
		s.i = i
		return nil, s.fail("control character %#02x in a string", c)
	}
}

// slowStr goes on with the string that began at start from i, for strings with escapes or bytes beyond ASCII.
func (s *scanner) slowStr(start, i int) ([]byte, error) {
	s.buf = append(s.buf[:0], s.b[start:i]...)
	s.i = i
	for s.i < len(s.b) {
		c := s.b[s.i]
		switch {
		case c == '"':
			s.i++
			return s.buf, nil
		case c == '\\':
			if err := s.escape(); err != nil {
				return nil, err
			}
		case c < ' ':
			return nil, s.fail("control character %#02x in a string", c)
		case c < utf8.RuneSelf:
			s.buf = append(s.buf, c)
			s.i++
		default:
			r, n := utf8.DecodeRune(s.b[s.i:])
			if r == utf8.RuneError && n == 1 {
				return nil, s.fail("bytes that are not UTF-8 in a string")
			}
			s.buf = append(s.buf, s.b[s.i:s.i+n]...)
			s.i += n
		}
	}
	return nil, s.fail("end of header in a string")
}

// escape takes one escape sequence (a surrogate pair is one) and appends what it means to buf.
func (s *scanner) escape() error {
	if s.i+1 >= len(s.b) {
		return s.fail("end of header in an escape")
	}
	c := s.b[s.i+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	plain := map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}
	r, ok := plain[c]
	if !ok {
		return s.fail("unknown escape \\%c", c)
	}
	s.buf = append(s.buf, r)
	s.i += 2
	return nil
}

func (s *scanner) unicodeEscape() error {
	r, err := s.hex4()
	if err != nil {
		return err
	}
	if utf16.IsSurrogate(r) {
		high := r
		if r, err = s.hex4(); err != nil {
			return s.fail("lone surrogate \\u%04x in a string", high)
		}
		if r = utf16.DecodeRune(high, r); r == utf8.RuneError {
			return s.fail("lone surrogate \\u%04x in a string", high)
		}
	}
	s.buf = utf8.AppendRune(s.buf, r)
	return nil
}

// hex4 takes \uXXXX.
func (s *scanner) hex4() (rune, error) {
	if s.i+6 > len(s.b) || s.b[s.i] != '\\' || s.b[s.i+1] != 'u' {
		return 0, s.fail("no \\uXXXX")
	}
	var r rune
	for _, c := range s.b[s.i+2 : s.i+6] {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, s.fail("%q is not a hexadecimal digit", c)
		}
	}
	s.i += 6
	return r, nil
}

// uint takes a plain decimal integer of 64 bits: no sign, fraction, exponent or leading zero.
func (s *scanner) uint() (uint64, error) {
	s.peek()
	start := s.i
	var v uint64
	for ; s.i < len(s.b) && s.b[s.i]-'0' <= 9; s.i++ {
		v = v*10 + uint64(s.b[s.i]-'0')
	}
	n := s.i - start
	if n >= 20 { // 10^19 is the last power of ten below 2^64
		var err error
		if v, err = strconv.ParseUint(string(s.b[start:s.i]), 10, 64); err != nil {
			return 0, s.fail("integer is over 64 bits")
		}
	}
	if n == 0 || n > 1 && s.b[start] == '0' {
		s.i = start
		return 0, s.fail("no plain decimal integer")
	}
	if s.i < len(s.b) && (s.b[s.i] == '.' || s.b[s.i]|0x20 == 'e') {
		return 0, s.fail("number is not a plain decimal integer")
	}
	return v, nil
}

// literal takes null, true or false.
func (s *scanner) literal(word string) error {
	if s.peek(); !s.take(word) {
		return s.fail("no value that JSON knows")
	}
	return nil
}

// skip takes any JSON value; depth is that of the value itself.
func (s *scanner) skip(depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: ignored value nests deeper than %d at byte %d of the JSON", ErrLimit, maxDepth, s.i)
	}
	switch s.peek() {
	case '"':
		_, err := s.str()
		return err
	case '{':
		return s.skipObject(depth)
	case '[':
		return s.skipArray(depth)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.skipNumber()
}

func (s *scanner) skipObject(depth int) error {
	s.i++
	if s.empty('}') {
		return nil
	}
	seen := map[string]bool{}
	for more := true; more; {
		key, err := s.str()
		if err != nil {
			return err
		}
		if seen[string(key)] {
			return s.duplicate(fmt.Sprintf("%q in an ignored value", key))
		}
		if len(seen) == maxKeys {
			return fmt.Errorf("%w: ignored object of more than %d keys at byte %d of the JSON", ErrLimit, maxKeys, s.i)
		}
		seen[string(key)] = true
		if err := s.expect(':'); err != nil {
			return err
		}
		if err := s.skip(depth + 1); err != nil {
			return err
		}
		if more, err = s.more('}'); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) skipArray(depth int) error {
	s.i++
	if s.empty(']') {
		return nil
	}
	for more := true; more; {
		err := s.skip(depth + 1)
		if err != nil {
			return err
		}
		if more, err = s.more(']'); err != nil {
			return err
		}
	}
	return nil
}

// skipNumber takes -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
func (s *scanner) skipNumber() error {
	s.takeOne("-")
	zero := s.takeOne("0")
	if !zero && s.digits() == 0 {
		return s.fail("no value that JSON knows")
	}
	if s.takeOne(".") && s.digits() == 0 {
		return s.fail("no digit after the decimal point")
	}
	if s.takeOne("eE") {
		s.takeOne("+-")
		if s.digits() == 0 {
			return s.fail("no digit in the exponent")
		}
	}
	return nil
}

// take takes the text if it stands next.
func (s *scanner) take(text string) bool {
	if len(s.b)-s.i < len(text) || string(s.b[s.i:s.i+len(text)]) != text {
		return false
	}
	s.i += len(text)
	return true
}

// takeOne takes one byte if it is one of set.
func (s *scanner) takeOne(set string) bool {
	for j := range len(set) {
		if s.i < len(s.b) && s.b[s.i] == set[j] {
			s.i++
			return true
		}
	}
	return false
}

// digits takes decimal digits and counts them.
func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
		s.i++
	}
	return s.i - start
}
