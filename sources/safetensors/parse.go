package safetensors

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"math/bits"
	"slices"
	"strings"
	"unicode/utf8"
)

// HeaderLen is N, from the first 8 bytes of a file of that size. It fails if N is over [MaxHeader] or reaches beyond the file, so that
// a caller can allocate 8+N bytes.
func HeaderLen(first8 []byte, fileSize int64) (int64, error) {
	if fileSize < 8 || len(first8) < 8 {
		return 0, fmt.Errorf("%w: %d bytes", ErrHeaderTooSmall, min(fileSize, int64(len(first8))))
	}
	n := binary.LittleEndian.Uint64(first8)
	if n > MaxHeader {
		return 0, fmt.Errorf("%w: %d bytes, the limit is %d", ErrHeaderTooLarge, n, MaxHeader)
	}
	if int64(n) > fileSize-8 {
		return 0, fmt.Errorf("%w: header of 8+%d bytes, file of %d", ErrHeaderLength, n, fileSize)
	}
	return int64(n), nil
}

// Read reads the first 8+N bytes of a file of that size, and no more, and parses them.
func Read(r io.Reader, fileSize int64) (*Header, error) {
	var first [8]byte
	if fileSize >= 8 {
		if _, err := io.ReadFull(r, first[:]); err != nil {
			return nil, fmt.Errorf("reading the header's length: %w", err)
		}
	}
	n, err := HeaderLen(first[:], fileSize)
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, 8+n), first[:]...)[:8+n]
	if _, err := io.ReadFull(r, head[8:]); err != nil {
		return nil, fmt.Errorf("reading the header of %d bytes: %w", n, err)
	}
	return Parse(head, fileSize)
}

// Parse parses head, the first 8+N bytes of a file of fileSize bytes, and validates it. It keeps no reference to head.
func Parse(head []byte, fileSize int64) (*Header, error) {
	var p Parser
	return p.Parse(head, fileSize)
}

// Parser parses headers one after the other in the same memory, which it keeps. The zero value is ready. It is not for parallel use.
type Parser struct{ parser }

// Parse is [Parse].
func (x *Parser) Parse(head []byte, fileSize int64) (*Header, error) {
	n, err := HeaderLen(head, fileSize)
	if err != nil {
		return nil, err
	}
	if int64(len(head)) != 8+n {
		return nil, fmt.Errorf("%w: got %d bytes of a header of 8+%d", ErrHeaderLength, len(head), n)
	}
	p := &x.parser
	p.reset(head[8:])
	defer p.reset(nil)
	if err := p.object(); err != nil {
		if !utf8.Valid(p.b) {
			return nil, fmt.Errorf("%w: %v", ErrHeaderUTF8, err)
		}
		return nil, err
	}
	h := &Header{fileSize: fileSize, dataStart: 8 + n, digest: sha256.Sum256(head)}
	if err := p.build(h); err != nil {
		return nil, err
	}
	return h, nil
}

// reset makes p ready for a JSON; of what was there it keeps memory that no Header has.
func (p *parser) reset(b []byte) {
	if p.shapes == nil {
		p.seed = maphash.MakeSeed()
		p.shapes, p.dtypes = map[string]uint32{}, map[string]uint32{}
	}
	clear(p.shapes)
	clear(p.dtypes)
	*p = parser{
		scanner: scanner{b: b, buf: p.buf},
		entries: slices.Grow(p.entries[:0], len(b)/128+1), names: slices.Grow(p.names[:0], len(b)/2),
		dims: p.dims[:0], shapeAt: p.shapeAt[:0], shapes: p.shapes, dtypes: p.dtypes,
		slots: p.slots, seed: p.seed,
	}
}

// entry is one tensor as it was parsed, names in parser.names.
type entry struct {
	begin, end uint64
	nameAt     uint32
	nameLen    uint32
	kind       uint32 // as Header.kinds
}

type parser struct {
	scanner
	entries  []entry
	names    []byte
	metadata map[string]string
	hasMeta  bool
	dims     []int64
	shapeAt  []uint32
	shapes   map[string]uint32 // text of a shape -> its number
	dtypes   map[string]uint32 // name of a dtype -> its number
	unknown  []string

	// slots is a table of the names: open addressing with linear probing, 0 is free, else an entry's number + 1.
	slots []uint32
	seed  maphash.Seed

	ignored      int    // unknown fields of tensors
	firstIgnored string // the first one, for people
}

// object takes the whole JSON.
func (p *parser) object() error {
	if err := p.expect('{'); err != nil {
		return err
	}
	for more := !p.empty('}'); more; {
		name, err := p.str()
		if err != nil {
			return err
		}
		if err := p.member(name); err != nil {
			return err
		}
		if more, err = p.more('}'); err != nil {
			return err
		}
	}
	if p.peek(); p.i < len(p.b) {
		return p.fail("%q after the end", p.b[p.i])
	}
	return nil
}

// member takes what follows the key of the outer object: one tensor, or the metadata.
func (p *parser) member(name []byte) error {
	if string(name) == "__metadata__" {
		return p.meta()
	}
	if len(name) > MaxName {
		return fmt.Errorf("%w: tensor name of %d bytes, at most %d, at byte %d of the JSON", ErrLimit, len(name), MaxName, p.i)
	}
	e := entry{nameAt: uint32(len(p.names)), nameLen: uint32(len(name))}
	p.names = append(p.names, name...)
	if err := p.expect(':'); err != nil {
		return err
	}
	if err := p.tensor(&e); err != nil {
		return fmt.Errorf("tensor %q: %w", p.name(e), err)
	}
	p.entries = append(p.entries, e)
	return nil
}

func (p *parser) name(e entry) []byte { return p.names[e.nameAt : e.nameAt+e.nameLen] }

// meta takes the value of __metadata__: null or an object of strings.
func (p *parser) meta() error {
	if p.hasMeta {
		return p.duplicate("__metadata__")
	}
	p.hasMeta = true
	if err := p.expect(':'); err != nil {
		return err
	}
	if p.peek() == 'n' {
		return p.literal("null")
	}
	if err := p.expect('{'); err != nil {
		return fmt.Errorf("__metadata__: %w", err)
	}
	p.metadata = map[string]string{}
	for more := !p.empty('}'); more; {
		if len(p.metadata) == maxKeys {
			return fmt.Errorf("%w: __metadata__ has more than %d keys", ErrLimit, maxKeys)
		}
		err := p.metaItem()
		if err == nil {
			more, err = p.more('}')
		}
		if err != nil {
			return fmt.Errorf("__metadata__: %w", err)
		}
	}
	return nil
}

func (p *parser) metaItem() error {
	b, err := p.str()
	if err != nil {
		return err
	}
	key := string(b)
	if _, ok := p.metadata[key]; ok {
		return p.duplicate(fmt.Sprintf("%q", key))
	}
	if err := p.expect(':'); err != nil {
		return err
	}
	value, err := p.str()
	if err != nil {
		return fmt.Errorf("value of %q: %w", key, err)
	}
	p.metadata[key] = string(value)
	return nil
}

// fields are the members of a tensor's object, bits of a set.
const (
	hasDType = 1 << iota
	hasShape
	hasOffsets
)

// tensor takes a tensor's object.
func (p *parser) tensor(e *entry) error {
	if err := p.expect('{'); err != nil {
		return err
	}
	var has int
	var other []string // unknown keys
	for more := !p.empty('}'); more; {
		field, err := p.key(&other)
		if err != nil {
			return err
		}
		if has&field != 0 {
			return p.duplicate("field")
		}
		has |= field
		if err := p.field(e, field); err != nil {
			return err
		}
		if more, err = p.more('}'); err != nil {
			return err
		}
	}
	if has != hasDType|hasShape|hasOffsets {
		return p.fail("dtype, shape or data_offsets is missing")
	}
	p.note(e, other)
	return nil
}

// key takes a key of a tensor's object with its colon: one of the fields, or 0 for an unknown key, which joins other.
func (p *parser) key(other *[]string) (field int, err error) {
	switch {
	case p.take(`"dtype":`):
		return hasDType, nil
	case p.take(`"shape":`):
		return hasShape, nil
	case p.take(`"data_offsets":`):
		return hasOffsets, nil
	}
	key, err := p.str()
	if err != nil {
		return 0, err
	}
	switch string(key) {
	case "dtype":
		field = hasDType
	case "shape":
		field = hasShape
	case "data_offsets":
		field = hasOffsets
	default:
		if slices.Contains(*other, string(key)) {
			return 0, p.duplicate("field")
		}
		if len(*other) == maxFields {
			return 0, fmt.Errorf("%w: more than %d unknown fields", ErrLimit, maxFields)
		}
		*other = append(*other, string(key))
	}
	return field, p.expect(':')
}

// note counts the unknown fields of a tensor.
func (p *parser) note(e *entry, other []string) {
	if p.ignored == 0 && len(other) > 0 {
		p.firstIgnored = fmt.Sprintf("%.64q of tensor %.200q", other[0], p.name(*e))
	}
	p.ignored += len(other)
}

func (p *parser) field(e *entry, field int) (err error) {
	switch field {
	case hasDType:
		var d uint32
		d, err = p.dtype()
		e.kind |= d << kindDType
	case hasShape:
		var k uint32
		k, err = p.shape()
		e.kind |= k
	case hasOffsets:
		err = p.offsets(e)
	default:
		err = p.skip(1)
	}
	return err
}

// dtype takes a dtype and is its number: the DType, or Opaque plus a position in unknown.
func (p *parser) dtype() (uint32, error) {
	name, err := p.str()
	if err != nil {
		return 0, fmt.Errorf("dtype: %w", err)
	}
	if d, ok := p.dtypes[string(name)]; ok {
		return d, nil
	}
	known, ok := ParseDType(string(name))
	d := uint32(known)
	if !ok {
		if len(name) > maxDType || len(p.unknown) == maxUnknown {
			return 0, fmt.Errorf("%w: unknown dtype %.100q: more than %d bytes, or more than %d such", ErrLimit, name, maxDType, maxUnknown)
		}
		d += uint32(len(p.unknown))
		p.unknown = append(p.unknown, string(name))
	}
	p.dtypes[string(name)] = d
	return d, nil
}

// shape takes a shape and is its number. Shapes of equal text are kept once.
func (p *parser) shape() (uint32, error) {
	if err := p.expect('['); err != nil {
		return 0, fmt.Errorf("shape: %w", err)
	}
	start := p.i
	if n := bytes.IndexByte(p.b[start:], ']'); n >= 0 {
		if k, ok := p.shapes[string(p.b[start:start+n])]; ok {
			p.i += n + 1
			return k, nil
		}
	}
	if len(p.shapeAt) == 0 {
		p.shapeAt = append(p.shapeAt, 0)
	}
	for more := !p.empty(']'); more; {
		d, err := p.uint()
		if err != nil {
			return 0, fmt.Errorf("shape: %w", err)
		}
		if d > math.MaxInt64 {
			return 0, fmt.Errorf("%w: dimension %d", ErrOverflow, d)
		}
		if p.dims = append(p.dims, int64(d)); len(p.dims)-int(p.shapeAt[len(p.shapeAt)-1]) > MaxRank {
			return 0, fmt.Errorf("%w: shape of more than %d dimensions", ErrLimit, MaxRank)
		}
		if more, err = p.more(']'); err != nil {
			return 0, fmt.Errorf("shape: %w", err)
		}
	}
	k := uint32(len(p.shapeAt)) - 1
	p.shapeAt = append(p.shapeAt, uint32(len(p.dims)))
	p.shapes[string(p.b[start:p.i-1])] = k
	return k, nil
}

// offsets takes [begin, end].
func (p *parser) offsets(e *entry) (err error) {
	if err = p.expect('['); err == nil {
		e.begin, err = p.uint()
	}
	if err == nil {
		err = p.expect(',')
	}
	if err == nil {
		e.end, err = p.uint()
	}
	if err == nil {
		err = p.expect(']')
	}
	if err != nil {
		return fmt.Errorf("data_offsets: %w", err)
	}
	return nil
}

// build validates what was parsed and moves it into h, in the order of the data section.
func (p *parser) build(h *Header) error {
	byPlace := func(a, b entry) int { return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end)) }
	sorted := slices.IsSortedFunc(p.entries, byPlace)
	if !sorted {
		slices.SortStableFunc(p.entries, byPlace)
	}
	h.metadata, h.unknown = p.metadata, p.unknown
	h.dims, h.shapeAt = slices.Clone(p.dims), slices.Clone(p.shapeAt)
	p.keepNames(h, sorted)
	if err := p.distinct(); err != nil {
		return err
	}
	if err := p.validate(h); err != nil {
		return err
	}
	h.notes = p.notes()
	return nil
}

// keepNames copies the names, in the order of the entries.
func (p *parser) keepNames(h *Header, sorted bool) {
	n := len(p.entries)
	h.nameAt = make([]uint32, n+1)
	var names strings.Builder
	names.Grow(len(p.names))
	if sorted {
		names.Write(p.names)
	}
	for i, e := range p.entries {
		if !sorted {
			names.Write(p.name(e))
		}
		h.nameAt[i+1] = h.nameAt[i] + e.nameLen
	}
	h.names = names.String()
}

// distinct refuses a name that occurs twice.
func (p *parser) distinct() error {
	n := uint64(len(p.entries) + len(p.entries)/2 + 1)
	p.slots = slices.Grow(p.slots[:0], int(n))[:n]
	clear(p.slots)
	for i, e := range p.entries {
		name := p.name(e)
		s, _ := bits.Mul64(maphash.Bytes(p.seed, name), n)
		for ; p.slots[s] != 0; s = (s + 1) % n {
			if bytes.Equal(p.name(p.entries[p.slots[s]-1]), name) {
				return fmt.Errorf("%w: tensor %q", ErrDuplicate, name)
			}
		}
		p.slots[s] = uint32(i) + 1
	}
	return nil
}

// validate checks that the tensors tile the data section and have the sizes their shapes say, and fills begins and kinds.
func (p *parser) validate(h *Header) error {
	h.begins = make([]uint64, len(p.entries)+1)
	h.kinds = make([]uint32, len(p.entries))
	var at uint64
	for i, e := range p.entries {
		if e.begin != at || e.end < e.begin {
			return fmt.Errorf("%w: tensor %q lies at [%d, %d), but the one before it ends at %d", ErrOffset, h.name(i), e.begin, e.end, at)
		}
		at = e.end
		h.begins[i+1], h.kinds[i] = e.end, e.kind
		if err := p.checkSize(e); err != nil {
			return fmt.Errorf("tensor %q: %w", h.name(i), err)
		}
	}
	if data := uint64(h.fileSize - h.dataStart); at != data {
		how := fmt.Sprintf("%d bytes are missing", at-data)
		if at < data {
			how = fmt.Sprintf("%d bytes are left over", data-at)
		}
		return fmt.Errorf("%w: header of %d bytes and tensors of %d, file of %d: %s", ErrFileLength, h.dataStart, at, h.fileSize, how)
	}
	return nil
}

// checkSize compares a tensor's length with its shape and dtype.
func (p *parser) checkSize(e entry) error {
	d := DType(min(e.kind>>kindDType, uint32(Opaque)))
	if d == Opaque {
		return nil
	}
	k := e.kind & kindShape
	shape := p.dims[p.shapeAt[k]:p.shapeAt[k+1]]
	n, err := count(shape, d)
	if err != nil {
		return err
	}
	if n != e.end-e.begin {
		return fmt.Errorf("%w: %s%v is %d bytes, data_offsets [%d, %d) are %d", ErrTensorSize, d, shape, n, e.begin, e.end, e.end-e.begin)
	}
	return nil
}

// count is the number of bytes of a tensor. A partial product that overflows is an error even if a later dimension is 0.
func count(shape []int64, d DType) (uint64, error) {
	n, over := uint64(1), uint64(0)
	for _, x := range shape {
		var hi uint64
		hi, n = bits.Mul64(n, uint64(x))
		over |= hi
	}
	hi, n := bits.Mul64(n, uint64(d.Bits()))
	if over|hi != 0 {
		return 0, fmt.Errorf("%w: %s%v", ErrOverflow, d, shape)
	}
	if n%8 != 0 {
		return 0, fmt.Errorf("%w: %s%v is %d bits", ErrMisaligned, d, shape, n)
	}
	return n / 8, nil
}

// Bytes is the number of bytes of a tensor of that shape and dtype. It fails with ErrOverflow or ErrMisaligned, and for Opaque.
func Bytes(shape []int64, d DType) (int64, error) {
	if d >= Opaque {
		return 0, errors.New("the element size of an unknown dtype is unknown")
	}
	for _, x := range shape {
		if x < 0 {
			return 0, fmt.Errorf("%w: dimension %d", ErrOverflow, x)
		}
	}
	n, err := count(shape, d)
	if err == nil && n > math.MaxInt64 {
		err = fmt.Errorf("%w: %s%v", ErrOverflow, d, shape)
	}
	return int64(n), err
}

func (p *parser) notes() (notes []string) {
	if p.ignored > 0 {
		notes = append(notes, fmt.Sprintf("%d unknown fields ignored, the first %s", p.ignored, p.firstIgnored))
	}
	for _, name := range p.unknown {
		notes = append(notes, fmt.Sprintf("unknown dtype %q: tensors of it are opaque", name))
	}
	long := 0
	for _, e := range p.entries {
		if e.nameLen > longName {
			long++
		}
	}
	if long > 0 {
		notes = append(notes, fmt.Sprintf("%d tensor names are longer than %d bytes", long, longName))
	}
	return notes
}
