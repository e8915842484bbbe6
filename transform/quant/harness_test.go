package quant

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// stream is the deterministic bytes behind the bulk vectors: SHA-256("weightfs-quant-v1:" + name + ":" + decimal counter) for 0, 1, 2, ...
type stream struct {
	name string
	n    int
	left []byte
}

func (s *stream) take(k int) []byte {
	for len(s.left) < k {
		h := sha256.Sum256(fmt.Appendf(nil, "weightfs-quant-v1:%s:%d", s.name, s.n))
		s.left, s.n = append(s.left, h[:]...), s.n+1
	}
	out := bytes.Clone(s.left[:k])
	s.left = s.left[k:]
	return out
}

func (s *stream) u16() uint16 { return binary.LittleEndian.Uint16(s.take(2)) }
func (s *stream) u32() uint32 { return binary.LittleEndian.Uint32(s.take(4)) }
func (s *stream) u64() uint64 { return binary.LittleEndian.Uint64(s.take(8)) }

// each draws n numbers.
func each(n int, draw func() []byte) []byte {
	var out []byte
	for range n {
		out = append(out, draw()...)
	}
	return out
}

func le16(v uint16) []byte { return binary.LittleEndian.AppendUint16(nil, v) }
func le32(v uint32) []byte { return binary.LittleEndian.AppendUint32(nil, v) }
func le64(v uint64) []byte { return binary.LittleEndian.AppendUint64(nil, v) }

func (s *stream) f32s(n int) []byte {
	return each(n, func() []byte { return le32(0x39000000 + s.u32()&0x01FFFFFF) })
}
func (s *stream) bf16s(n int) []byte {
	return each(n, func() []byte { return le16(0x3900 + s.u16()&0x03FF) })
}
func (s *stream) f16s(n int) []byte {
	return each(n, func() []byte { return le16(0x1C00 + s.u16()&0x0FFF) })
}
func (s *stream) e8m0s(n int) []byte {
	return each(n, func() []byte { return []byte{112 + s.take(1)[0]&15} })
}
func (s *stream) e4m3s(n int) []byte {
	return each(n, func() []byte { return []byte{0x30 + s.take(1)[0]&0x3F} })
}
func (s *stream) values(n int) []byte {
	return each(n, func() []byte { v := s.u16(); return le16(v&0x8000 | (0x3A00 + v&0x03FF)) })
}

// file is one tensor with its bytes.
type file struct {
	dtype string
	shape []int64
	data  []byte
}

// groupOf is a group of files named under module m. Those that Facts asks for get their content.
func groupOf(files map[string]file, c Config, metadata map[string]string) Group {
	g := Group{Module: "m", Tensors: map[string]Tensor{}, Config: c, Metadata: metadata}
	for s, f := range files {
		g.Tensors[s] = Tensor{Name: TensorName("m", s), DType: f.dtype, Shape: f.shape}
	}
	for _, s := range Facts(g) {
		t := g.Tensors[s]
		t.Data = files[s].data
		g.Tensors[s] = t
	}
	return g
}

// recognise is a match that must succeed, with the bytes of its inputs.
func recognise(t testing.TB, files map[string]file, c Config, metadata map[string]string) (*Match, [][]byte) {
	t.Helper()
	m, err := Recognise(groupOf(files, c, metadata))
	if err != nil {
		t.Fatal(err)
	}
	if m == nil {
		t.Fatal("not recognised")
	}
	in := make([][]byte, len(m.Inputs))
	for i, s := range m.Inputs {
		in[i] = files[s].data
		if got := m.Codec.InputLens()[i]; got != int64(len(in[i])) {
			t.Fatalf("input %q: codec expects %d bytes, the tensor has %d", s, got, len(in[i]))
		}
	}
	elements := int64(1)
	for _, d := range m.Shape {
		elements *= d
	}
	if m.Codec.Len() != 2*elements {
		t.Fatalf("codec makes %d bytes for shape %v", m.Codec.Len(), m.Shape)
	}
	return m, in
}

// decode reads [off, off+n) of a codec's output from just the bytes it needs, and fails on bytes written beyond.
func decode(t tb, c plan.Codec, in [][]byte, off, n int64) []byte {
	t.Helper()
	const guard = 64
	buf := bytes.Repeat([]byte{0xA5}, int(n)+2*guard)
	if err := c.Decode(buf[guard:guard+n:guard+n], off, needed(t, c, in, off, n)); err != nil {
		t.Fatalf("%s: decode [%d, +%d): %v", c, off, n, err)
	}
	for i, b := range buf {
		if (i < guard || i >= guard+int(n)) && b != 0xA5 {
			t.Fatalf("%s: decode [%d, +%d) wrote outside dst at %d", c, off, n, i-guard)
		}
	}
	return buf[guard : guard+n]
}

type tb interface {
	Helper()
	Fatalf(format string, args ...any)
}

// needed copies the ranges that the codec asks for, each to memory of its own.
func needed(t tb, c plan.Codec, in [][]byte, off, n int64) [][]byte {
	t.Helper()
	var out [][]byte
	for _, need := range c.Needs(off, n) {
		if need.Start < 0 || need.Start > need.End || need.End > int64(len(in[need.Input])) {
			t.Fatalf("%s: needs [%d, %d) of input %d with %d bytes", c, need.Start, need.End, need.Input, len(in[need.Input]))
		}
		out = append(out, bytes.Clone(in[need.Input][need.Start:need.End]))
	}
	return out
}

// whole is a codec's whole output.
func whole(t tb, c plan.Codec, in [][]byte) []byte {
	t.Helper()
	return decode(t, c, in, 0, c.Len())
}

// checkWindows compares random windows with the whole output.
func checkWindows(t *testing.T, c plan.Codec, in [][]byte) {
	t.Helper()
	all := whole(t, c, in)
	if tile := c.Tile(); tile <= 0 {
		t.Fatalf("%s: tile %d", c, tile)
	}
	rapid.Check(t, func(r *rapid.T) {
		off := rapid.Int64Range(0, c.Len()-1).Draw(r, "off")
		n := rapid.Int64Range(1, c.Len()-off).Draw(r, "n")
		if rapid.Bool().Draw(r, "short") {
			n = min(n, 70)
		}
		if got := decode(r, c, in, off, n); !bytes.Equal(got, all[off:off+n]) {
			r.Fatalf("%s: window [%d, +%d) differs from the whole", c, off, n)
		}
	})
}

func hash(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }

// hexBytes reads hex with spaces.
func hexBytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.NewReplacer(" ", "", "/", "", "|", "").Replace(s))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// bf16Hex writes BF16 output as four hex digits an element.
func bf16Hex(b []byte) string {
	var out []string
	for i := 0; i+1 < len(b); i += 2 {
		out = append(out, fmt.Sprintf("%04X", binary.LittleEndian.Uint16(b[i:])))
	}
	return strings.Join(out, " ")
}
