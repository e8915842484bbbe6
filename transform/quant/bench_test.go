//go:build !purego

package quant

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/fs/plan"
)

// benchRows and benchCols are the shape of the benchmarks' matrices: 32 MiB of BF16, beyond the caches.
const benchRows, benchCols = 2048, 8192

// benchGroup is a matrix of one format.
type benchGroup struct {
	name, format string // of the benchmark, and of the row in the table of formats
	files        map[string]file
	config       Config
	metadata     map[string]string
}

// random makes tensors of random data, with scales in the usual range.
type random struct{ r *rand.Rand }

func (s random) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(s.r.Uint32())
	}
	return b
}

func (s random) among(n int, low, span byte) []byte {
	b := s.bytes(n)
	for i := range b {
		b[i] = low + b[i]%span
	}
	return b
}

func (s random) bf16s(shape ...int64) file {
	return file{"BF16", shape, each(elements(shape), func() []byte { return le16(uint16(0x3900 + s.r.Uint32N(0x400))) })}
}
func (s random) f32s(shape ...int64) file {
	return file{"F32", shape, each(elements(shape), func() []byte { return le32(0x39000000 + s.r.Uint32N(1<<25)) })}
}
func (s random) halves(shape ...int64) file {
	return file{"F16", shape, each(elements(shape), func() []byte { return le16(uint16(0x1C00 + s.r.Uint32N(0x1000))) })}
}
func (s random) codes(dtype string, shape ...int64) file {
	size := map[string]int{"I32": 4, "U32": 4}[dtype]
	return file{dtype, shape, s.bytes(max(size, 1) * elements(shape))}
}
func (s random) exponents(shape ...int64) file {
	return file{"U8", shape, s.among(elements(shape), 112, 16)}
}
func (s random) e4m3s(shape ...int64) file {
	return file{"F8_E4M3", shape, s.among(elements(shape), 0x30, 0x40)}
}

func elements(shape []int64) int {
	n := 1
	for _, d := range shape {
		n *= int(d)
	}
	return n
}

func textFile(s string) file { return file{"U8", []int64{int64(len(s))}, []byte(s)} }

// benchGroups has a group of every format of the table, and of every kernel. r is a multiple of 128, c of 256.
func benchGroups(r, c int64) []benchGroup {
	s := random{rand.New(rand.NewPCG(7, 7))}
	shape := file{"I64", []int64{2}, append(le64(uint64(r)), le64(uint64(c))...)}
	number := func(n uint32) file { return file{"I32", nil, le32(n)} }
	gptq := func(bits int64) map[string]file {
		return map[string]file{"qweight": s.codes("I32", c*bits/32, r), "qzeros": s.codes("I32", c/128, r*bits/32), "scales": s.halves(c/128, r)}
	}
	permuted := gptq(4)
	permuted["g_idx"] = file{"I32", []int64{c}, each(int(c), func() []byte { return le32(s.r.Uint32N(uint32(c / 128))) })}
	nf4 := func(state string) map[string]file {
		return map[string]file{"weight": s.codes("U8", r*c/2, 1), state: textFile(fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "nested_blocksize": 256, "nested_offset": 0.05, "shape": [%d, %d]}`, r, c))}
	}
	plainNF4, nestedNF4 := nf4(bnbStateNF4), nf4(bnbStateNF4)
	plainNF4[bnbAbsmax] = s.f32s(r * c / 64)
	nestedNF4[bnbAbsmax], nestedNF4[bnbNestedAbsmax], nestedNF4[bnbNestedMap] = s.codes("U8", r*c/64), s.f32s(r*c/64/256), s.f32s(256)
	hqq := func(axis uint32, scales ...int64) map[string]file {
		return map[string]file{"W_q": s.codes("U8", r*c/64/2, 64), "scale": s.halves(scales...), "zero": s.halves(scales...), "nbits": number(4), "group_size": number(64),
			"axis": number(axis), "packing": textFile("4bit_u8"), "shape": shape}
	}
	across := hqq(0, 1, r*c/64)
	across["W_q"] = s.codes("U8", 32, r*c/64)
	mlx := func(bits int64) map[string]file {
		return map[string]file{"weight": s.codes("U32", r, c*bits/32), "scales": s.bf16s(r, c/64), "biases": s.bf16s(r, c/64)}
	}
	ao := map[string]string{"m.weight": `{"_type": "Float8Tensor", "_data": {"block_size": [1, 256]}}`}
	return []benchGroup{
		{name: "fp8-block", format: "fp8", files: map[string]file{"weight": s.codes("F8_E4M3", r, c), "weight_scale_inv": s.f32s(r/128, c/128)}},
		{name: "fp8-channel", format: "fp8", files: map[string]file{"weight": s.codes("F8_E4M3", r, c), "weight_scale": s.bf16s(r, 1)}},
		{name: "fp8-e5m2-block", format: "fp8", files: map[string]file{"weight": s.codes("F8_E5M2", r, c), "weight_scale_inv": s.f32s(r/128, c/128)}},
		{name: "mxfp8", format: "fp8", files: map[string]file{"weight": s.codes("F8_E4M3", r, c), "weight_scale": s.exponents(r, c/32)}},
		{name: "int8-channel", format: "fp8", files: map[string]file{"weight": s.codes("I8", r, c), "weight_scale": s.bf16s(r, 1)}},
		{name: "int8-group32", format: "fp8", files: map[string]file{"weight": s.codes("I8", r, c), "weight_scale": s.bf16s(r, c/32)}},
		{name: "mxfp4", format: "mxfp4", files: map[string]file{"weight_packed": s.codes("U8", r, c/2), "weight_scale": s.exponents(r, c/32)}},
		{name: "mxfp6", format: "mxfp6", files: map[string]file{"weight_packed": s.codes("U8", r, c/4*3), "weight_scale": s.exponents(r, c/32)}},
		{name: "deepseek-fp4", format: "deepseek-fp4", files: map[string]file{"weight": s.codes("I8", r, c/2), "scale": {"F8_E8M0", []int64{r, c / 32}, s.exponents(r, c/32).data}}},
		{name: "nvfp4", format: "nvfp4", files: map[string]file{"weight": s.codes("U8", r, c/2), "weight_scale": s.e4m3s(r, c/16), "weight_scale_2": s.f32s()}},
		{name: "gpt-oss", format: "gpt-oss", files: map[string]file{"_blocks": s.codes("U8", 1, r, c/32, 16), "_scales": s.exponents(1, r, c/32)}},
		{name: "modelopt-int4", format: "modelopt-int4", files: map[string]file{"weight": s.codes("U8", r/2, c), "weight_scale": s.bf16s(r, c/128)}},
		{name: "int4-group32", format: "pack-quantized", files: map[string]file{"weight_packed": s.codes("I32", r, c/8), "weight_scale": s.bf16s(r, c/32), "weight_shape": shape}},
		{name: "int8-packed", format: "pack-quantized", files: map[string]file{"weight_packed": s.codes("I32", r, c/4), "weight_scale": s.bf16s(r, 1), "weight_shape": shape},
			config: Config{Method: "compressed-tensors", Raw: []byte(`{"config_groups": {"group_0": {"weights": {"num_bits": 8}}}}`)}},
		{name: "mlx-4-group64", format: "mlx", files: mlx(4), config: Config{Bits: 4, GroupSize: 64}},
		{name: "mlx-6-group64", format: "mlx", files: mlx(6), config: Config{Bits: 6, GroupSize: 64}},
		{name: "gptq-4-group128", format: "gptq", files: gptq(4), config: Config{Method: "gptq"}},
		{name: "gptq-3-group128", format: "gptq", files: gptq(3), config: Config{Method: "gptq"}},
		{name: "gptq-8-group128", format: "gptq", files: gptq(8), config: Config{Method: "gptq"}},
		{name: "gptq-4-permuted", format: "gptq", files: permuted, config: Config{Method: "gptq"}},
		{name: "awq-group128", format: "awq", files: map[string]file{"qweight": s.codes("I32", c, r/8), "qzeros": s.codes("I32", c/128, r/8), "scales": s.halves(c/128, r)}},
		{name: "nf4", format: "bitsandbytes-4bit", files: plainNF4},
		{name: "nf4-nested", format: "bitsandbytes-4bit", files: nestedNF4},
		{name: "llm-int8", format: "bitsandbytes-int8", files: map[string]file{"weight": s.codes("I8", r, c), "SCB": s.f32s(r)}},
		{name: "hqq-4-axis1", format: "hqq", files: hqq(1, r*c/64, 1)},
		{name: "hqq-4-axis0", format: "hqq", files: across},
		{name: "torchao-fp8", format: "torchao", files: map[string]file{aoData: s.codes("F8_E4M3", r, c), aoScale: s.f32s(r, c/256)}, metadata: ao},
		{name: "comfy-nvfp4", format: "comfy", files: map[string]file{"weight": s.codes("U8", r, c/2), "weight_scale": s.e4m3s(r, c/16), "weight_scale_2": s.f32s(), "comfy_quant": textFile(`{"format": "nvfp4"}`)}},
		{name: "bitnet", format: "bitnet", files: map[string]file{"weight": s.codes("U8", r/4, c), "weight_scale": s.bf16s(1)}, config: Config{Method: "bitnet"}},
	}
}

// TestEveryFormatIsBenchmarked: the table's formats that have codecs, and plain dtypes, each have a benchmark that is of them.
func TestEveryFormatIsBenchmarked(t *testing.T) {
	have := map[string]bool{}
	for _, g := range benchGroups(128, 512) {
		m, _ := recognise(t, g.files, g.config, g.metadata)
		if m.Format != g.format {
			t.Errorf("benchmark %s is of format %s, not %s", g.name, m.Format, g.format)
		}
		have[m.Format] = true
	}
	for _, f := range formats {
		if none := []string{"refused", "unknown", "activation-scales"}; !have[f.name] && !slices.Contains(none, f.name) {
			t.Errorf("format %s has no benchmark", f.name)
		}
	}
}

// threadTime is the processor time of the thread: other work on the machine does not count.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// benchCodec decodes all of a codec's output in windows of 256 KiB (or a tile, if that is more), each beside a copy of as many bytes. It
// reports medians over the windows, of processor time: the rate, and the ratio to copying.
func benchCodec(b *testing.B, c plan.Codec, in [][]byte) {
	b.Helper()
	dst, copied, src := make([]byte, c.Len()), make([]byte, c.Len()), make([]byte, c.Len())
	for i := range src {
		src[i], copied[i], dst[i] = byte(i), 1, 1
	}
	step := max(256<<10, c.Tile())
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var decoding, copying []time.Duration
	b.SetBytes(c.Len())
	for b.Loop() {
		for off := int64(0); off < c.Len(); off += step {
			n := min(step, c.Len()-off)
			parts := together(c.Needs(off, n), in)
			start := threadTime(b)
			if err := c.Decode(dst[off:off+n], off, parts); err != nil {
				b.Fatal(err)
			}
			decoded := threadTime(b)
			copy(copied[off:off+n], src[off:off+n])
			decoding, copying = append(decoding, decoded-start), append(copying, threadTime(b)-decoded)
		}
	}
	slices.Sort(decoding)
	slices.Sort(copying)
	d, k := decoding[len(decoding)/2], copying[len(copying)/2]
	b.ReportMetric(float64(step)/float64(d), "GB/s")
	b.ReportMetric(float64(k)/float64(d), "copy")
	b.ReportMetric(0, "ns/op")
}

// together is the ranges of the inputs, as a reader of plans gathers them: many ranges one after the other.
func together(needs []plan.Need, in [][]byte) [][]byte {
	parts := make([][]byte, len(needs))
	var all []byte
	for i, need := range needs {
		parts[i] = in[need.Input][need.Start:need.End]
		if len(needs) > 16 {
			all = append(all, parts[i]...)
		}
	}
	for i := range parts {
		if n := len(parts[i]); len(needs) > 16 {
			parts[i], all = all[:n:n], all[n:]
		}
	}
	return parts
}

// withVectors is a codec with the assembly of a level, nil for none; false if that changes nothing.
func withVectors(c plan.Codec, v *vectors) (plan.Codec, bool) {
	switch c := c.(type) {
	case concat:
		plain, any := make(concat, len(c)), false
		for i, p := range c {
			level, ok := withVectors(p, v)
			plain[i], any = level, any || ok
		}
		return plain, any
	case *rowCodec:
		plain := *c
		var ok bool
		plain.kernel, ok = at(c.kernel, v)
		return &plain, ok
	case *columns:
		plain := *c
		plain.kernel = fastGPTQ{c.kernel.(fastGPTQ).gptq, v}
		return &plain, true
	case *transposed:
		inner, ok := withVectors(c.inner, v)
		plain := *c
		plain.inner = inner.(*rowCodec)
		return &plain, ok
	}
	return c, false
}

// benchLevels runs a benchmark at every level that this machine has; plain Go is called "plain".
func benchLevels(b *testing.B, name string, c plan.Codec, in [][]byte) {
	for _, v := range runnable() {
		level, ok := withVectors(c, v)
		switch {
		case v == nil && ok:
			b.Run(name+"/plain", func(b *testing.B) { benchCodec(b, level, in) })
		case v == nil:
			b.Run(name, func(b *testing.B) { benchCodec(b, level, in) })
		case ok:
			b.Run(name+"/"+v.name, func(b *testing.B) { benchCodec(b, level, in) })
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, g := range benchGroups(benchRows, benchCols) {
		m, in := recognise(b, g.files, g.config, g.metadata)
		benchLevels(b, g.name, m.Codec, in)
	}
}

func BenchmarkCast(b *testing.B) {
	for _, dtype := range slices.Sorted(maps.Keys(castKinds)) {
		c := Cast(dtype, []int64{benchRows, benchCols})
		benchLevels(b, dtype, c, [][]byte{random{rand.New(rand.NewPCG(8, 8))}.bytes(int(c.InputLens()[0]))})
	}
}

// BenchmarkEncode4 reports bytes of BF16 input.
func BenchmarkEncode4(b *testing.B) {
	values := (&stream{name: "bench"}).values(1 << 16)
	in := repeat(values, 32)
	for _, rule := range []Rule{RuleORT, RuleORTSymmetric, RuleWebAI} {
		for _, block := range []int64{16, 32, 64} {
			e, err := Encode4(rawBF16(len(in)), "BF16", 256, 8192, block, rule)
			if err != nil {
				b.Fatal(err)
			}
			for _, v := range runnable() {
				level := *e.Data.(*encoded)
				level.kernel = nil
				if v != nil {
					level.kernel = v.blocks(rule, block)
				}
				if v == nil || level.kernel != nil {
					b.Run(fmt.Sprintf("%s-%d/%s", rule, block, levelName(v)), func(b *testing.B) { benchEncode(b, &level, in) })
				}
			}
		}
	}
}

func benchEncode(b *testing.B, c plan.Codec, in []byte) {
	const step = 64 << 10 // of data: 256 KiB of values
	dst := make([]byte, step)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var times []time.Duration
	b.SetBytes(int64(len(in)))
	for b.Loop() {
		for off := int64(0); off < c.Len(); off += step {
			start := threadTime(b)
			if err := c.Decode(dst, off, [][]byte{in[4*off : 4*(off+step)]}); err != nil {
				b.Fatal(err)
			}
			times = append(times, threadTime(b)-start)
		}
	}
	slices.Sort(times)
	b.ReportMetric(4*step/float64(times[len(times)/2]), "GB/s")
	b.ReportMetric(0, "ns/op")
}
