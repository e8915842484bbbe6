package safetensors

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Encode makes the first 8+N bytes of a file with these tensors, in the order given, which is that of the data section: Begin and End
// must tile it. The JSON has no white space but the padding at its end, which makes 8+N a multiple of align (at least 1); metadata,
// if any, comes first, keys sorted. The same arguments give the same bytes. What [Parse] would refuse is an error here.
func Encode(tensors []Tensor, metadata map[string]string, align int64) ([]byte, error) {
	n, err := EncodedLen(tensors, metadata, align)
	if err != nil {
		return nil, err
	}
	b := appendMetadata(make([]byte, 8, n), metadata)
	for i := range tensors {
		b = appendTensor(b, &tensors[i])
	}
	if len(b) == 8 {
		b = append(b, ',')
	}
	b[8] = '{'
	b = append(b, '}')
	for int64(len(b)) < n {
		b = append(b, ' ')
	}
	binary.LittleEndian.PutUint64(b, uint64(n-8))
	var data int64
	if len(tensors) > 0 {
		data = tensors[len(tensors)-1].End
	}
	if _, err := Parse(b, n+data); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return b, nil
}

// EncodedLen is the length of what [Encode] makes, computed without making it.
func EncodedLen(tensors []Tensor, metadata map[string]string, align int64) (int64, error) {
	l := NewLength(metadata)
	for i := range tensors {
		if err := l.Add(&tensors[i]); err != nil {
			return 0, err
		}
	}
	return l.Bytes(align)
}

// Length finds the length of what [Encode] makes from one tensor after the other.
type Length struct {
	members int64
	scratch []byte
}

// NewLength begins with no tensor.
func NewLength(metadata map[string]string) *Length {
	b := appendMetadata(nil, metadata)
	return &Length{members: int64(len(b)), scratch: b}
}

// Add counts one more tensor.
func (l *Length) Add(t *Tensor) error {
	if t.Name == "__metadata__" || !utf8.ValidString(t.Name) {
		return fmt.Errorf("encoding: %w: tensor name %q", ErrHeaderJSON, t.Name)
	}
	l.scratch = appendTensor(l.scratch[:0], t)
	l.members += int64(len(l.scratch))
	return nil
}

// Bytes is the length with padding to a multiple of align.
func (l *Length) Bytes(align int64) (int64, error) {
	n := 8 + max(l.members, 1) + 1 // the first comma becomes the opening brace
	n = (n + align - 1) / align * align
	if n-8 > MaxHeader {
		return 0, fmt.Errorf("encoding: %w: %d bytes, the limit is %d", ErrHeaderTooLarge, n-8, MaxHeader)
	}
	return n, nil
}

// appendMetadata appends the member __metadata__ with a comma before it.
func appendMetadata(b []byte, metadata map[string]string) []byte {
	if len(metadata) == 0 {
		return b
	}
	b = append(b, `,"__metadata__":`...)
	sep := byte('{')
	for _, k := range slices.Sorted(maps.Keys(metadata)) {
		b = appendString(append(b, sep), k)
		b = appendString(append(b, ':'), metadata[k])
		sep = ','
	}
	return append(b, '}')
}

// appendTensor appends the member of one tensor with a comma before it.
func appendTensor(b []byte, t *Tensor) []byte {
	b = appendString(append(b, ','), t.Name)
	b = append(b, `:{"dtype":`...)
	if t.DType < Opaque {
		b = append(append(append(b, '"'), dtypes[t.DType].name...), '"')
	} else {
		b = appendString(b, t.DTypeName)
	}
	b = append(b, `,"shape":[`...)
	for i, d := range t.Shape {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	b = append(b, `],"data_offsets":[`...)
	b = append(strconv.AppendInt(b, t.Begin, 10), ',')
	return append(strconv.AppendInt(b, t.End, 10), "]}"...)
}

// appendString appends s as a JSON string: only what must be escaped is.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	from := len(b)
	b = append(b, s...)
	if n := PlainLen(b[from:]); n < len(s) {
		b, s = b[:from+n], s[n:]
		for i := range len(s) {
			switch c := s[i]; {
			case c == '"' || c == '\\':
				b = append(b, '\\', c)
			case c < ' ':
				b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			default:
				b = append(b, c)
			}
		}
	}
	return append(b, '"')
}
