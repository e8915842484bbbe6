package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"weightfs/fs/plan"
	"weightfs/transform/quant"
)

// A matrix of the kernels: 32 MiB of BF16, beyond the caches.
const kernelRows, kernelCols = 2048, 8192

// kernelLevels are the sets of instructions that kernels are measured with, by what their samples' names begin with: the best that the processor has,
// and none. x/sys/cpu lets the environment take features away.
func kernelLevels() map[string][]string {
	return map[string][]string{"kernel ": nil, "kernel plain ": {"GODEBUG=cpu.avx2=off,cpu.avx512f=off"}}
}

// kernelRates measures every level in a process of its own.
func (b *bench) kernelRates() error {
	for name, env := range kernelLevels() {
		r, err := b.child(job{Op: "kernels", Env: env})
		if err != nil {
			return err
		}
		if r.Values["vectors"] != 0 != (env == nil && quant.Instructions() != "") {
			return fmt.Errorf("%skernels: the environment %q does not say which instructions they use", name, env)
		}
		delete(r.Values, "vectors")
		for sample, v := range r.Values {
			if strings.HasSuffix(sample, " copy") {
				b.add(name+sample, v)
			} else {
				b.add(name+sample, v/gb)
			}
		}
	}
	return nil
}

// kernelWants are the rows of kernels: with vectors at least half as fast as a copy of their output, in plain Go a fifth.
func kernelWants() []want {
	group, level := "Kernels, one core, of a copy of the output", quant.Instructions()
	var out []want
	row := func(text, sample, unit string, atLeast float64) {
		out = append(out, want{group: group, text: text, num: sample, unit: unit, atLeast: atLeast})
	}
	kinds := []struct{ text, sample string }{{"FP8, 128x128 blocks", "FP8 copy"}, {"MXFP4", "MXFP4 copy"}, {"NVFP4", "NVFP4 copy"}}
	for _, k := range kinds {
		if level != "" {
			row(k.text+", "+level, "kernel "+k.sample, "x", 0.5)
		}
		row(k.text+", plain Go", "kernel plain "+k.sample, "x", 0.2)
	}
	group = "Kernels, one core"
	if atLeast := map[string]float64{"AVX-512": 1.5, "AVX2": 0.8}[level]; atLeast > 0 {
		row("4-bit encoding, BF16 input, "+level, "kernel 4-bit encoding", "GB/s", atLeast)
	}
	row("4-bit encoding, BF16 input, plain Go", "kernel plain 4-bit encoding", "GB/s", 0)
	return out
}

// side is a tensor of a quantized matrix: random codes, or scales made by fill.
type side struct {
	dtype string
	shape []int64
	data  []byte
}

// kernels decodes one matrix of each format, and encodes one, on one core, beside copies of as many bytes. Medians of windows.
func kernels() (result, error) {
	const r, c = kernelRows, kernelCols
	s := rand.New(rand.NewPCG(7, 7))
	bytes := func(n int, low, spread uint32) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(low + s.Uint32N(spread))
		}
		return b
	}
	words := func(n int, low, spread uint32) []byte {
		var b []byte
		for range n {
			b = binary.LittleEndian.AppendUint16(b, uint16(low+s.Uint32N(spread)))
		}
		return b
	}
	formats := map[string]map[string]side{
		"FP8":   {"weight": {"F8_E4M3", []int64{r, c}, bytes(r*c, 0, 256)}, "weight_scale_inv": {"BF16", []int64{r / 128, c / 128}, words(r*c/128/128, 0x3900, 0x400)}},
		"MXFP4": {"weight_packed": {"U8", []int64{r, c / 2}, bytes(r*c/2, 0, 256)}, "weight_scale": {"U8", []int64{r, c / 32}, bytes(r*c/32, 112, 16)}},
		"NVFP4": {"weight": {"U8", []int64{r, c / 2}, bytes(r*c/2, 0, 256)}, "weight_scale": {"F8_E4M3", []int64{r, c / 16}, bytes(r*c/16, 0x30, 0x40)},
			"weight_scale_2": {"F32", []int64{}, binary.LittleEndian.AppendUint32(nil, 0x3a800000)}},
	}
	out := result{Values: map[string]float64{}}
	if quant.Instructions() != "" {
		out.Values["vectors"] = 1
	}
	for name, sides := range formats {
		codec, in, err := recognised(sides)
		if err != nil {
			return result{}, fmt.Errorf("%s: %w", name, err)
		}
		rate, ratio, err := window(codec, in, 256<<10, codec.Len())
		if err != nil {
			return result{}, err
		}
		out.Values[name], out.Values[name+" copy"] = rate, ratio
	}
	enc, err := quant.Encode4(same(2*r*c), "BF16", r, c, 32, quant.RuleORT)
	if err != nil {
		return result{}, err
	}
	rate, _, err := window(enc.Data, [][]byte{words(r*c, 0x3a00, 0x400)}, 64<<10, enc.Data.Len())
	out.Values["4-bit encoding"] = rate * 4 // bytes of BF16 for one of output
	return out, err
}

// same is a codec whose output is its input, of so many bytes.
type same int64

func (c same) String() string                 { return "same" }
func (c same) Len() int64                     { return int64(c) }
func (c same) InputLens() []int64             { return []int64{int64(c)} }
func (c same) Tile() int64                    { return 1 }
func (c same) Needs(off, n int64) []plan.Need { return []plan.Need{{Start: off, End: off + n}} }
func (c same) Decode(dst []byte, _ int64, in [][]byte) error {
	copy(dst, in[0])
	return nil
}

// recognised is the codec of a matrix and its inputs.
func recognised(sides map[string]side) (plan.Codec, [][]byte, error) {
	g := quant.Group{Module: "m", Tensors: map[string]quant.Tensor{}}
	for suffix, x := range sides {
		g.Tensors[suffix] = quant.Tensor{Name: "m." + suffix, DType: x.dtype, Shape: x.shape}
		if len(x.data) < 64 {
			t := g.Tensors[suffix]
			t.Data = x.data
			g.Tensors[suffix] = t
		}
	}
	m, err := quant.Recognise(g)
	if err != nil {
		return nil, nil, err
	}
	if m == nil || m.Codec == nil {
		return nil, nil, fmt.Errorf("not recognised")
	}
	var in [][]byte
	for _, suffix := range m.Inputs {
		in = append(in, sides[suffix].data)
	}
	return m.Codec, in, nil
}

// window runs a codec over its output in steps, each beside a copy of as many bytes: bytes a second of output, and their ratio to copying.
func window(c plan.Codec, in [][]byte, step, size int64) (rate, ratio float64, err error) {
	dst, src, copied := make([]byte, size), make([]byte, size), make([]byte, size)
	for i := range src {
		src[i], dst[i], copied[i] = byte(i), 1, 1
	}
	var decoding, copying []float64
	for range 3 {
		for off := int64(0); off < size; off += step {
			n := min(step, size-off)
			var parts [][]byte
			for _, need := range c.Needs(off, n) {
				parts = append(parts, in[need.Input][need.Start:need.End])
			}
			start := time.Now()
			if err := c.Decode(dst[off:off+n], off, parts); err != nil {
				return 0, 0, err
			}
			middle := time.Now()
			copy(copied[off:off+n], src[off:off+n])
			decoding, copying = append(decoding, middle.Sub(start).Seconds()), append(copying, time.Since(middle).Seconds())
		}
	}
	d, k := median(decoding), median(copying)
	return float64(step) / d, k / d, nil
}
