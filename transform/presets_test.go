package transform

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// The quantizer of webai-at-home, written after its TypeScript (packages/_onnx_experiments/tools/weight_conversion/
// quantize_matmulnbits.ts, MIT), with its own rounding to half precision.

// jsRound is JavaScript's Math.round: the nearest integer, halves up.
func jsRound(x float64) float64 {
	n := math.Floor(x)
	if x-n >= 0.5 {
		n++
	}
	return n
}

func halfValue(h int) float64 {
	if h < 0x400 {
		return math.Ldexp(float64(h), -24)
	}
	return math.Ldexp(float64(0x400+h&0x3FF), h>>10-25)
}

// half is the F16 nearest to a number, the even one of two.
func half(f float32) uint16 {
	if f <= 0 {
		sign := uint16(math.Float32bits(f) >> 16 & 0x8000)
		if f == 0 {
			return sign
		}
		return half(-f) | sign
	}
	h := sort.Search(0x7C00, func(h int) bool { return halfValue(h) >= float64(f) })
	if below, above := float64(f)-halfValue(h-1), halfValue(h)-float64(f); below < above || below == above && h%2 == 1 {
		h--
	}
	return uint16(h)
}

func halfFloat(h uint16) float32 {
	return float32(math.Copysign(halfValue(int(h&0x7FFF)), 1-2*float64(h>>15)))
}

func webaiQuantize(data []byte, rows, cols int) (quantized, scales, zeros []byte) {
	blocks := (cols + 31) / 32
	quantized, zeros = make([]byte, rows*blocks*16), make([]byte, rows*((blocks+1)/2))
	for r := range rows {
		for b := range blocks {
			value := func(c int) float64 {
				if c >= cols {
					return 0
				}
				return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*(r*cols+c):])) << 16))
			}
			smallest, largest := math.Inf(1), math.Inf(-1)
			for c := 32 * b; c < min(32*b+32, cols); c++ {
				smallest, largest = math.Min(smallest, value(c)), math.Max(largest, value(c))
			}
			scale := (largest - smallest) / 15
			if largest == smallest {
				scale = 1
			}
			zero := math.Min(15, math.Max(0, jsRound(-smallest/scale)))
			zeros[r*((blocks+1)/2)+b/2] |= byte(zero) << (b % 2 * 4)
			scales = binary.LittleEndian.AppendUint16(scales, half(float32(scale)))
			for k := range 32 {
				stored := math.Min(15, math.Max(0, jsRound(value(32*b+k)/scale)+zero))
				quantized[(r*blocks+b)*16+k/2] |= byte(stored) << (k % 2 * 4)
			}
		}
	}
	return quantized, scales, zeros
}

// ortQuantize is onnxruntime's own quantizer (core/mlas/lib/q4_dq.cpp) in blocks of columns of BF16 or F32 data; zeros is nil for the symmetric one.
func ortQuantize(data []byte, rows, cols, block int, symmetric bool) (quantized, scales, zeros []byte) {
	blocks := (cols + block - 1) / block
	quantized, zeros = make([]byte, rows*blocks*block/2), make([]byte, rows*((blocks+1)/2))
	round := func(x float32) float32 { return float32(math.Round(float64(x))) }
	clamp := func(x float32) float32 { return min(max(x, 0), 15) }
	for r := range rows {
		for b := range blocks {
			var values []float32
			for c := b * block; c < min((b+1)*block, cols); c++ {
				if i := r*cols + c; len(data) == 4*rows*cols {
					values = append(values, math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
				} else {
					values = append(values, math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:]))<<16))
				}
			}
			mn, mx := min(slices.Min(values), 0), max(slices.Max(values), 0)
			s, zero := (mx-mn)/15, mn
			if s != 0 {
				zero = -(mn / s)
			}
			zero = round(clamp(zero))
			if symmetric {
				s, zero = mx/-8, 8
				if -mn >= mx {
					s = mn / -8
				}
			}
			stored := half(s)
			scales = binary.LittleEndian.AppendUint16(scales, stored)
			zeros[r*((blocks+1)/2)+b/2] |= byte(zero) << (b % 2 * 4)
			var inverse float32
			if v := halfFloat(stored); v != 0 {
				inverse = 1 / v
			}
			for k, v := range values {
				quantized[(r*blocks+b)*block/2+k/2] |= byte(clamp(round(float32(v*inverse)+zero))) << (k % 2 * 4)
			}
		}
	}
	if symmetric {
		zeros = nil
	}
	return quantized, scales, zeros
}

// TestQ4: the blocks of every 4-bit encoding, byte for byte.
func TestQ4(t *testing.T) {
	for _, x := range smallExperts {
		r := byName(t, x.release)
		dir, m := open(r)
		for _, scheme := range []string{"sym", "asym"} {
			for _, block := range []int{16, 32, 64} {
				view := fmt.Sprintf("experts/q4-%s-%d", scheme, block)
				for _, l := range x.layers[:1] {
					for e := range 2 {
						var parts []dumbPart
						for _, p := range x.bf16Parts(r, x.prefix, l, e) {
							q, s, z := ortQuantize(p.data, int(p.shape[0]), int(p.shape[1]), block, scheme == "sym")
							parts = append(parts, dumbPart{data: q}, dumbPart{data: s})
							if z != nil {
								parts = append(parts, dumbPart{data: z})
							}
						}
						want, _ := dumbBlock(parts)
						path := fmt.Sprintf("%s/blocks/L%03d/E%03d.bin", view, l, e)
						if got := at(t, dir, m, path); string(got) != string(want) {
							t.Fatalf("%s: %s: %d bytes, want %d; first difference at %d", r.Name, path, len(got), len(want), firstDiff(got, want))
						}
					}
				}
			}
		}
	}
}

// qwen3 is a small Qwen3-MoE in BF16 with a hidden size and a width whose parts begin on multiples of 256, as the converter wants.
func qwen3(t *testing.T) (*memory, map[string]dumbTensor) {
	tensors := map[string]dumbTensor{}
	seed := uint32(1)
	add := func(name string, shape ...int64) {
		data := make([]byte, 2*count(shape))
		for i := 0; i < len(data); i += 2 {
			seed = seed*1664525 + 1013904223
			binary.LittleEndian.PutUint16(data[i:], uint16(seed>>16)&0x83FF|0x3A00)
		}
		tensors[name] = dumbTensor{name, "BF16", shape, data}
	}
	const hidden, width = 1024, 256
	for l := range 2 {
		prefix := fmt.Sprintf("model.layers.%d.", l)
		add(prefix+"input_layernorm.weight", hidden)
		add(prefix+"mlp.gate.weight", 3, hidden)
		for e := range 3 {
			add(fmt.Sprintf("%smlp.experts.%d.gate_proj.weight", prefix, e), width, hidden)
			add(fmt.Sprintf("%smlp.experts.%d.up_proj.weight", prefix, e), width, hidden)
			add(fmt.Sprintf("%smlp.experts.%d.down_proj.weight", prefix, e), hidden, width)
		}
	}
	add("model.embed_tokens.weight", 11, hidden)
	var all []dumbTensor
	for _, d := range tensors {
		all = append(all, d)
	}
	return fromFiles("qwen3", map[string][]byte{
		"config.json":       []byte(`{"model_type":"qwen3_moe","hidden_size":1024,"num_experts":3,"num_hidden_layers":2,"moe_intermediate_size":256}`),
		"model.safetensors": dumbShard(all),
	}), tensors
}

// TestWebAI: the published layout, byte for byte by a writer of its own.
func TestWebAI(t *testing.T) {
	m, tensors := qwen3(t)
	dir := m.tree()
	var want []byte
	for l := range 2 {
		for e := range 3 {
			for _, p := range []string{"gate_proj", "up_proj", "down_proj"} {
				d := tensors[fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s.weight", l, e, p)]
				q, s, z := webaiQuantize(d.data, int(d.shape[0]), int(d.shape[1]))
				want = append(append(append(want, q...), s...), z...)
			}
		}
	}
	if got := at(t, dir, m, "experts/webai/expert_blocks.bin"); string(got) != string(want) {
		t.Errorf("expert_blocks.bin: %d bytes, want %d; first difference at %d", len(got), len(want), firstDiff(got, want))
	}
	header, data := "{", ""
	for _, name := range []string{
		"model.embed_tokens.weight", "model.layers.0.input_layernorm.weight", "model.layers.0.mlp.gate.weight",
		"model.layers.1.input_layernorm.weight", "model.layers.1.mlp.gate.weight",
	} {
		d := tensors[name]
		shape := strings.ReplaceAll(strings.Trim(fmt.Sprint(d.shape), "[]"), " ", ",")
		header += fmt.Sprintf(`%q:{"dtype":"BF16","shape":[%s],"data_offsets":[%d,%d]},`, name, shape, len(data), len(data)+len(d.data))
		data += string(d.data)
	}
	header = strings.TrimSuffix(header, ",") + "}"
	for len(header)%8 != 0 {
		header += " "
	}
	resident := string(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))) + header + data
	if got := at(t, dir, m, "experts/webai/resident.safetensors"); string(got) != resident {
		t.Errorf("resident.safetensors: %d bytes, want %d; first difference at %d", len(got), len(resident), firstDiff(got, []byte(resident)))
	}
	var manifest struct {
		BlockByteLength int
		Parts           []struct{ Name string }
		Quantization    struct {
			Bits, BlockSize int
			Scheme          string
		}
	}
	if err := json.Unmarshal(at(t, dir, m, "experts/webai/manifest.json"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.BlockByteLength*6 != len(want) || len(manifest.Parts) != 9 || manifest.Quantization.Bits != 4 || manifest.Quantization.BlockSize != 32 {
		t.Errorf("manifest: %+v", manifest)
	}
}

// TestWebAIQwen3 has the numbers of Qwen3-30B-A3B: 48 layers of 128 experts [768, 2048], blocks of 666 pages.
func TestWebAIQwen3(t *testing.T) {
	x := &release.Experts{Layers: make([]int, 48), PerLayer: 128}
	p := &release.Part{Fused: true}
	var parts []blockPart
	for _, name := range []string{"gate", "up", "down"} {
		shape := []int64{768, 2048}
		if name == "down" {
			shape = []int64{2048, 768}
		}
		encoded, err := blockPart{projection: name, suffix: "weight", shape: shape, from: p, pieces: func(int, int) []plan.Piece {
			return []plan.Piece{plan.Copy{Span: plan.Span{End: 2 * 768 * 2048}}}
		}}.encoded(2, 32)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, encoded...)
	}
	var size int64
	for _, p := range parts {
		if size%256 != 0 {
			t.Errorf("part %s begins at %d", p.name(), size)
		}
		size += p.size
	}
	if len(parts) != 9 || size != 2_727_936 || size*int64(len(x.Layers)*x.PerLayer) != 16_760_438_784 {
		t.Errorf("%d parts, %d bytes", len(parts), size)
	}
}

// mlx is a small release as MLX's 4-bit conversion writes it.
func mlx(t *testing.T) (*memory, []dumbTensor) {
	var ts []dumbTensor
	add := func(name, dtype string, shape ...int64) {
		d, _ := safetensors.ParseDType(dtype)
		data := make([]byte, count(shape)*int64(d.Bits())/8)
		for i := range data {
			data[i] = byte(i*7 + len(ts))
		}
		ts = append(ts, dumbTensor{name, dtype, shape, data})
	}
	linear := func(name string, lead []int64, out, in int64) {
		add(name+".weight", "U32", append(lead, out, in/8)...)
		add(name+".scales", "BF16", append(lead, out, in/64)...)
		add(name+".biases", "BF16", append(lead, out, in/64)...)
	}
	for l := range 2 {
		prefix := fmt.Sprintf("language_model.model.layers.%d.", l)
		add(prefix+"input_layernorm.weight", "BF16", 128)
		linear(prefix+"mlp.gate", nil, 4, 128)
		for _, p := range []string{"gate_proj", "up_proj"} {
			linear(prefix+"mlp.switch_mlp."+p, []int64{4}, 64, 128)
		}
		linear(prefix+"mlp.switch_mlp.down_proj", []int64{4}, 128, 64)
	}
	add("vision_tower.patch_embed.weight", "BF16", 3, 5)
	config := `{"model_type":"qwen3_5_moe","quantization":{"group_size":64,"bits":4},"text_config":{"hidden_size":128,"num_experts":4,"moe_intermediate_size":64,"num_hidden_layers":2}}`
	return fromFiles("mlx", map[string][]byte{"config.json": []byte(config), "model.safetensors": dumbShard(ts)}), ts
}

// TestFlashMoE: what repack_experts.py and extract_weights.py of flash-moe make of an MLX release.
func TestFlashMoE(t *testing.T) {
	m, ts := mlx(t)
	dir := m.tree()
	byName := map[string]dumbTensor{}
	for _, d := range ts {
		byName[d.name] = d
	}
	for l := range 2 {
		var want []byte
		for e := range 4 {
			for _, p := range []string{"gate_proj", "up_proj", "down_proj"} {
				for _, suffix := range []string{"weight", "scales", "biases"} {
					d := byName[fmt.Sprintf("language_model.model.layers.%d.mlp.switch_mlp.%s.%s", l, p, suffix)]
					n := len(d.data) / 4
					want = append(want, d.data[e*n:(e+1)*n]...)
				}
			}
		}
		path := fmt.Sprintf("experts/flash-moe/packed_experts/layer_%02d.bin", l)
		if got := at(t, dir, m, path); string(got) != string(want) {
			t.Errorf("%s: %d bytes, want %d; first difference at %d", path, len(got), len(want), firstDiff(got, want))
		}
	}
	var index struct {
		NumTensors int `json:"num_tensors"`
		Tensors    map[string]struct {
			Offset, Size int
			Shape        []int64
			DType        string
		}
		Config map[string]any
	}
	if err := json.Unmarshal(at(t, dir, m, "experts/flash-moe/model_weights.json"), &index); err != nil {
		t.Fatal(err)
	}
	bin := at(t, dir, m, "experts/flash-moe/model_weights.bin")
	for name, x := range index.Tensors {
		d := byName["language_model."+name]
		if x.Offset%64 != 0 || x.DType != d.dtype || fmt.Sprint(x.Shape) != fmt.Sprint(d.shape) || string(bin[x.Offset:x.Offset+x.Size]) != string(d.data) {
			t.Errorf("%s is %+v, want %s %v", name, x, d.dtype, d.shape)
		}
	}
	if index.NumTensors != 8 || len(index.Tensors) != 8 || index.Config["hidden_size"] != 128.0 {
		t.Errorf("%d tensors, config %v", index.NumTensors, index.Config)
	}
}

// TestVariants: blocks on other boundaries open by name and are not listed.
func TestVariants(t *testing.T) {
	dir, m := open(testrel.MixtralSingle())
	for name, align := range map[string]int{"native-16k": 16 << 10, "bf16-64k": 64 << 10, "q4-asym-32-2m": 2 << 20} {
		var manifest struct{ BlockByteLength int }
		if err := json.Unmarshal(at(t, dir, m, "experts/"+name+"/manifest.json"), &manifest); err != nil {
			t.Fatal(err)
		}
		if manifest.BlockByteLength%align != 0 {
			t.Errorf("%s: blocks of %d bytes", name, manifest.BlockByteLength)
		}
	}
	for _, name := range []string{"native-4k", "webai-16k", "native-16k-16k", "-16k"} {
		if _, err := plan.Walk(t.Context(), dir, "experts/"+name); err == nil {
			t.Errorf("experts/%s exists", name)
		}
	}
	if n := len(files(t, dir, "experts")); n == 0 {
		t.Error("nothing listed")
	}
}

func TestParsePreset(t *testing.T) {
	good := `{"name":"mine","about":"Mine.","encoding":"bf16","partAlign":512,"blockAlign":8192,"parts":["down.weight","up.weight","gate.weight"]}`
	v, err := ParsePreset([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	m := fromRelease(testrel.MixtralSingle())
	l := m.listing()
	dir := TreeOf(append(Views(), v), l, m.open)
	var manifest struct {
		BlockByteLength int
		Parts           []struct {
			Name   string
			Offset int
		}
	}
	if err := json.Unmarshal(at(t, dir, m, "experts/mine/manifest.json"), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.BlockByteLength%8192 != 0 || manifest.Parts[0].Name != "down.weight" || manifest.Parts[1].Offset%512 != 0 {
		t.Errorf("%+v", manifest)
	}
	for _, bad := range []string{
		``, `{}`, `[]`, good + `x`, `{"name":"../x","encoding":"bf16","partAlign":1,"blockAlign":1}`,
		`{"name":"native","encoding":"bf16","partAlign":1,"blockAlign":1}`, `{"name":"x","encoding":"q5","partAlign":1,"blockAlign":1}`,
		`{"name":"x","encoding":"bf16","partAlign":3,"blockAlign":1}`, `{"name":"x","encoding":"bf16","partAlign":1,"blockAlign":2147483648}`,
		`{"name":"x","encoding":"bf16","partAlign":1,"blockAlign":1,"surprise":1}`,
		`{"name":"x","encoding":"bf16","partAlign":1,"blockAlign":1,"perLayer":"a/%s"}`,
		`{"name":"x","encoding":"bf16","partAlign":1,"blockAlign":1,"perLayer":"../%d"}`,
		`{"name":"x","encoding":"bf16","partAlign":1,"blockAlign":1,"resident":{"form":"flat","file":"a","align":64}}`,
	} {
		if _, err := ParsePreset([]byte(bad)); err == nil {
			t.Errorf("accepted %s", bad)
		}
	}
}

// FuzzParsePreset: what is accepted lays out any experts without a panic, within its bounds.
func FuzzParsePreset(f *testing.F) {
	f.Add([]byte(`{"name":"mine","about":"Mine.","encoding":"bf16","partAlign":512,"blockAlign":8192}`))
	f.Add([]byte(`{"name":"l","encoding":"q4-sym-16","partAlign":1,"blockAlign":1,"perLayer":"a/l_%02d.bin","parts":["up.weight"]}`))
	f.Add([]byte(`{"name":"r","encoding":"native","partAlign":64,"blockAlign":1,"resident":{"form":"flat","file":"a.bin","align":64,"index":"a.json"}}`))
	m := fromRelease(testrel.MixtralSingle())
	rel, err := m.open(f.Context())
	if err != nil {
		f.Fatal(err)
	}
	in := newInput(rel)
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := ParsePreset(text)
		if err != nil {
			return
		}
		dir, _, err := v.build(in)
		if err != nil {
			return
		}
		for _, x := range files(t, dir, "") {
			if strings.HasPrefix(x.path, "..") || strings.Contains(x.path, "//") || x.node.Size < 0 {
				t.Fatalf("%s has %d bytes", x.path, x.node.Size)
			}
		}
	})
}
