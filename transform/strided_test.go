package transform

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// decodeRange runs a codec over an output range as the executor does: it hands over the bytes of Needs and no others.
func decodeRange(t *rapid.T, c plan.Codec, inputs [][]byte, off, n int64) []byte {
	var in [][]byte
	for _, need := range c.Needs(off, n) {
		in = append(in, bytes.Clone(inputs[need.Input][need.Start:need.End]))
	}
	dst := make([]byte, n)
	if err := c.Decode(dst, off, in); err != nil {
		t.Fatal(err)
	}
	return dst
}

// TestStrided picks random matrices out of random bytes, in one read and in pieces, and compares with picking element by element.
func TestStrided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := int64(rapid.SampledFrom([]int{1, 2, 2, 4}).Draw(t, "width"))
		rows, cols := rapid.Int64Range(1, 70).Draw(t, "rows"), rapid.Int64Range(1, 9).Draw(t, "cols")
		base := rapid.Int64Range(0, 5).Draw(t, "base")
		rowStep, colStep := rapid.Int64Range(1, 20).Draw(t, "rowStep"), rapid.Int64Range(1, 20).Draw(t, "colStep")
		elements := base + (rows-1)*rowStep + (cols-1)*colStep + 1 + rapid.Int64Range(0, 3).Draw(t, "rest")
		src := rapid.SliceOfN(rapid.Byte(), int(elements*width), int(elements*width)).Draw(t, "src")
		c := strided{raw{elements * width}, width, base, rows, cols, rowStep, colStep}

		var want []byte
		for r := range rows {
			for k := range cols {
				at := (base + r*rowStep + k*colStep) * width
				want = append(want, src[at:at+width]...)
			}
		}
		if c.Len() != int64(len(want)) {
			t.Fatalf("Len %d, want %d", c.Len(), len(want))
		}
		var got []byte
		for off := int64(0); off < c.Len(); {
			n := c.Len() - off
			if rapid.Bool().Draw(t, "part") {
				n = rapid.Int64Range(1, n).Draw(t, "n")
			}
			got = append(got, decodeRange(t, c, [][]byte{src}, off, n)...)
			off += n
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("%s: got %x, want %x", c, got, want)
		}
	})
}

func BenchmarkTranspose(b *testing.B) {
	const rows, cols = 2048, 5120
	c := strided{raw{4 * rows * cols}, 2, rows, rows, cols, 1, 2 * rows} // the up half of [in, 2*out]
	src, dst := make([]byte, 4*rows*cols), make([]byte, 2*rows*cols)
	need := c.Needs(0, c.Len())[0]
	b.SetBytes(c.Len())
	for b.Loop() {
		if err := c.Decode(dst, 0, [][]byte{src[need.Start:need.End]}); err != nil {
			b.Fatal(err)
		}
	}
}
