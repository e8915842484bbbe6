//go:build !purego

package quant

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestScaled8StripsEqualReference: any columns of rows in blocks, also more than there are tables at once, with scales of every kind beside usual ones.
func TestScaled8StripsEqualReference(t *testing.T) {
	classes := scaleClasses()
	rapid.Check(t, func(t *rapid.T) {
		k := scaled8{codes: codes8[rapid.SampledFrom([]string{"F8_E4M3", "I8"}).Draw(t, "dtype")], scale: numF32}
		k.bn = rapid.SampledFrom([]int{32, 64, 96, 100, 128}).Draw(t, "bn")
		blocks := rapid.SampledFrom([]int{1, 2, 5, 60, 300, 600}).Draw(t, "blocks")
		s := strip{rows: rapid.IntRange(1, 3).Draw(t, "rows"), c1: rapid.IntRange((blocks-1)*k.bn+1, blocks*k.bn).Draw(t, "end")}
		s.c0 = rapid.IntRange(0, s.c1-1).Draw(t, "start")
		unusual := rapid.SampledFrom([]int{0, 1, 30, 100}).Draw(t, "unusual of 100")
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		n := s.c1 - s.c0
		data := make([]byte, s.rows*n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		var scales []byte
		for range s.rows * blocks {
			scale := 0x39000000 + r.Uint32N(1<<25)
			if r.IntN(100) < unusual {
				scale = math.Float32bits(classes[r.IntN(len(classes))])
			}
			scales = append(scales, le32(scale)...)
		}
		s.in, s.stride, s.dstStride = [][]byte{data, scales}, []int{n, 4 * blocks}, 2*n
		if rapid.Bool().Draw(t, "shared") {
			s.stride[1] = 0
		}
		decode := func(k kernel) []byte {
			s.dst = make([]byte, 2*len(data))
			if err := k.decode(&s); err != nil {
				t.Fatal(err)
			}
			return s.dst
		}
		want := decode(refScaled8{k})
		for _, v := range runnable() {
			if !bytes.Equal(decode(fastScaled8{k, v}), want) {
				t.Fatalf("%s, %s differs from the reference", k.params(), levelName(v))
			}
		}
	})
}

// TestTablesAreMadeInVectors: where vectors make tables, no scale has one made in plain Go, which takes as long as some thousand codes.
func TestTablesAreMadeInVectors(t *testing.T) {
	scales := append(le32(math.Float32bits(1)), le32(0)...)
	for _, v := range runnable() {
		if v == nil || v.buildTable == nil {
			continue
		}
		k := fastScaled8{scaled8{codes: e4m3Values, scale: numF32, bn: 128}, v}
		tables := k.newTables(2, false)
		for i := range 2 {
			k.build(tables, i, &strip{in: [][]byte{nil, scales}, stride: []int{0, 0}}, 0, i)
		}
		if !tables.plain[0] || tables.plain[1] || tables.bytes == nil || tables.lut != nil {
			t.Errorf("%s: %v, %d tables for vectors, %d in plain Go", v.name, tables.plain, len(tables.bytes), len(tables.lut))
		}
	}
}
