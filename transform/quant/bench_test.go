//go:build !purego

package quant

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"weightfs/fs/plan"
)

// benchRows and benchCols are the shape of the benchmarks' matrices: 32 MiB of BF16, beyond the caches.
const benchRows, benchCols = 2048, 8192

// benchGroups is a group of every format that has a kernel of its own, of random data with scales in the usual range.
func benchGroups() map[string]map[string]file {
	s := rand.New(rand.NewPCG(7, 7))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(s.Uint32())
		}
		return b
	}
	scales := func(n int, low, span byte) []byte {
		b := random(n)
		for i := range b {
			b[i] = low + b[i]%span
		}
		return b
	}
	bf16s := func(n int) []byte {
		return each(n, func() []byte { return le16(uint16(0x3900 + s.Uint32N(0x400))) })
	}
	f32s := func(n int) []byte { return each(n, func() []byte { return le32(0x39000000 + s.Uint32N(1<<25)) }) }
	halves := func(n int) []byte { return each(n, func() []byte { return le16(uint16(0x1C00 + s.Uint32N(0x1000))) }) }
	const r, c = benchRows, benchCols
	return map[string]map[string]file{
		"fp8-block-f32":   {"weight": {"F8_E4M3", []int64{r, c}, random(r * c)}, "weight_scale_inv": {"F32", []int64{r / 128, c / 128}, f32s(r * c / 128 / 128)}},
		"fp8-channel":     {"weight": {"F8_E4M3", []int64{r, c}, random(r * c)}, "weight_scale": {"BF16", []int64{r, 1}, bf16s(r)}},
		"mxfp8":           {"weight": {"F8_E4M3", []int64{r, c}, random(r * c)}, "weight_scale": {"U8", []int64{r, c / 32}, scales(r*c/32, 112, 16)}},
		"int8-group32":    {"weight": {"I8", []int64{r, c}, random(r * c)}, "weight_scale": {"BF16", []int64{r, c / 32}, bf16s(r * c / 32)}},
		"mxfp4":           {"weight_packed": {"U8", []int64{r, c / 2}, random(r * c / 2)}, "weight_scale": {"U8", []int64{r, c / 32}, scales(r*c/32, 112, 16)}},
		"nvfp4":           {"weight": {"U8", []int64{r, c / 2}, random(r * c / 2)}, "weight_scale": {"F8_E4M3", []int64{r, c / 16}, scales(r*c/16, 0x30, 0x40)}, "weight_scale_2": {"F32", nil, f32s(1)}},
		"gpt-oss":         {"_blocks": {"U8", []int64{1, r, c / 32, 16}, random(r * c / 2)}, "_scales": {"U8", []int64{1, r, c / 32}, scales(r*c/32, 112, 16)}},
		"int4-group32":    {"weight_packed": {"I32", []int64{r, c / 8}, random(r * c / 2)}, "weight_scale": {"BF16", []int64{r, c / 32}, bf16s(r * c / 32)}, "weight_shape": {"I64", []int64{2}, append(le64(r), le64(c)...)}},
		"mlx-4-group64":   {"weight": {"U32", []int64{r, c / 8}, random(r * c / 2)}, "scales": {"BF16", []int64{r, c / 64}, bf16s(r * c / 64)}, "biases": {"BF16", []int64{r, c / 64}, bf16s(r * c / 64)}},
		"mlx-6-group64":   {"weight": {"U32", []int64{r, c / 32 * 6}, random(r * c / 4 * 3)}, "scales": {"BF16", []int64{r, c / 64}, bf16s(r * c / 64)}, "biases": {"BF16", []int64{r, c / 64}, bf16s(r * c / 64)}},
		"gptq-4-group128": {"qweight": {"I32", []int64{c / 8, r}, random(r * c / 2)}, "qzeros": {"I32", []int64{c / 128, r / 8}, random(r * c / 128 / 2)}, "scales": {"F16", []int64{c / 128, r}, halves(r * c / 128)}},
		"awq-group128":    {"qweight": {"I32", []int64{c, r / 8}, random(r * c / 2)}, "qzeros": {"I32", []int64{c / 128, r / 8}, random(r * c / 128 / 2)}, "scales": {"F16", []int64{c / 128, r}, halves(r * c / 128)}},
		"nf4":             {"weight": {"U8", []int64{r * c / 2, 1}, random(r * c / 2)}, bnbAbsmax: {"F32", []int64{r * c / 64}, f32s(r * c / 64)}, bnbStateNF4: {"U8", []int64{64}, []byte(`{"quant_type": "nf4", "blocksize": 64, "shape": [2048, 8192]}`)}},
	}
}

var benchConfig = Config{Method: "gptq", Bits: 0, Raw: []byte(`{"m":{"bits":4,"group_size":64},"group_size":64,"bits":6}`)}

// benchCodec decodes all of a codec's output in windows of 256 KiB (or a tile, if that is more), each beside a copy of as many bytes. It
// reports medians over the windows, which other work on the machine does not move: the rate, and the ratio to copying.
func benchCodec(b *testing.B, c plan.Codec, in [][]byte) {
	b.Helper()
	dst, copied, src := make([]byte, c.Len()), make([]byte, c.Len()), make([]byte, c.Len())
	for i := range src {
		src[i], copied[i], dst[i] = byte(i), 1, 1
	}
	step := max(256<<10, c.Tile())
	var decoding, copying []time.Duration
	b.SetBytes(c.Len())
	for b.Loop() {
		for off := int64(0); off < c.Len(); off += step {
			n := min(step, c.Len()-off)
			var parts [][]byte
			for _, need := range c.Needs(off, n) {
				parts = append(parts, in[need.Input][need.Start:need.End])
			}
			start := time.Now()
			if err := c.Decode(dst[off:off+n], off, parts); err != nil {
				b.Fatal(err)
			}
			decoded := time.Now()
			copy(copied[off:off+n], src[off:off+n])
			decoding, copying = append(decoding, decoded.Sub(start)), append(copying, time.Since(decoded))
		}
	}
	slices.Sort(decoding)
	slices.Sort(copying)
	d, k := decoding[len(decoding)/2], copying[len(copying)/2]
	b.ReportMetric(float64(step)/float64(d), "GB/s")
	b.ReportMetric(float64(k)/float64(d), "copy")
}

func BenchmarkDecode(b *testing.B) {
	groups := benchGroups()
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		files, config := groups[name], benchConfig
		if name == "mlx-4-group64" {
			config = Config{Bits: 4, GroupSize: 64}
		}
		m, in := recognise(b, files, config, nil)
		b.Run(name, func(b *testing.B) { benchCodec(b, m.Codec, in) })
		if c, ok := m.Codec.(*rowCodec); ok {
			plain := *c
			if plain.kernel, ok = scalar(c.kernel); ok {
				b.Run(name+"/plain", func(b *testing.B) { benchCodec(b, &plain, in) })
			}
		}
	}
}

func BenchmarkCast(b *testing.B) {
	for _, dtype := range []string{"F16", "F32", "F8_E4M3"} {
		c := Cast(dtype, []int64{benchRows, benchCols})
		b.Run(dtype, func(b *testing.B) { benchCodec(b, c, [][]byte{make([]byte, c.InputLens()[0])}) })
	}
}

func BenchmarkEncode4(b *testing.B) {
	values := (&stream{name: "bench"}).values(1 << 16)
	in := repeat(values, 32)
	for _, rule := range []Rule{RuleORT, RuleORTSymmetric, RuleWebAI} {
		e, err := Encode4(rawBF16(len(in)), 256, 8192, 32, rule)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(rule.String(), func(b *testing.B) {
			const step = 64 << 10 // of data: 256 KiB of values
			dst := make([]byte, step)
			var times []time.Duration
			b.SetBytes(int64(len(in)))
			for b.Loop() {
				for off := int64(0); off < e.Data.Len(); off += step {
					start := time.Now()
					if err := e.Data.Decode(dst, off, [][]byte{in[4*off : 4*(off+step)]}); err != nil {
						b.Fatal(err)
					}
					times = append(times, time.Since(start))
				}
			}
			slices.Sort(times)
			b.ReportMetric(4*step/float64(times[len(times)/2]), "GB/s")
		})
	}
}
