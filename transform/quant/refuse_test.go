package quant

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
)

// shapes is a group of tensors without content.
func shapes(tensors map[string]string, c Config) Group {
	g := Group{Module: "m", Tensors: map[string]Tensor{}, Config: c}
	for suffix, description := range tensors {
		var t Tensor
		dtype, dims, _ := strings.Cut(description, " ")
		t.Name, t.DType = TensorName("m", suffix), dtype
		for _, d := range strings.Fields(dims) {
			var n int64
			fmt.Sscan(d, &n)
			t.Shape = append(t.Shape, n)
		}
		g.Tensors[suffix] = t
	}
	return g
}

func TestRefusals(t *testing.T) {
	block := Config{Method: "fp8", Block: [2]int{128, 128}}
	for _, x := range []struct {
		name           string
		tensors        map[string]string
		config         Config
		tensor, reason string
	}{
		{"no scale in a release that declares fp8", map[string]string{"weight": "F8_E4M3 8 8"}, block, "m.weight", "without a scale"},
		{"no scale where others have one", map[string]string{"weight": "F8_E4M3 8 8"}, Config{ScaledF8: true}, "m.weight", "without a scale"},
		{"grid too small", map[string]string{"weight": "F8_E4M3 300 300", "weight_scale_inv": "F32 2 2"}, block, "m.weight_scale_inv", "scale grid [2, 2] fits no block size"},
		{"scale of another rank", map[string]string{"weight": "F8_E4M3 2 300 300", "weight_scale_inv": "F32 3 3"}, block, "m.weight_scale_inv", "does not begin with the 2 experts"},
		{"empty scale", map[string]string{"weight": "F8_E4M3 8 8", "weight_scale": "F32 0"}, block, "m.weight_scale", "empty"},
		{"scale of unknown dtype", map[string]string{"weight": "F8_E4M3 8 8", "weight_scale": "I64 1"}, block, "m.weight_scale", "dtype I64"},
		{"fp8 with a second scale", map[string]string{"weight": "F8_E4M3 8 8", "weight_scale": "F32 1", "weight_scale_2": "F32"}, block, "m.weight_scale_2", "second scale"},
		{"fp8 vector", map[string]string{"weight": "F8_E4M3 8", "weight_scale": "F32 1"}, block, "m.weight_scale", "no rows and columns"},
		{"mxfp4 misshapen", map[string]string{"weight_packed": "U8 4 16", "weight_scale": "U8 4 2"}, Config{}, "m.weight_scale", "expected [4 1]"},
		{"quark, exponents without a bias", map[string]string{"weight": "U8 4 16", "weight_scale": "U8 4 1"}, Config{Method: "quark", Raw: []byte(`{"global_quant_config":{"weight":{"dtype":"mx","mx_element_dtype":"fp4"}}}`)}, "m.weight_scale", "dtype mx"},
		{"quark, scales of a small float", map[string]string{"weight": "U8 4 16", "weight_scale": "U8 4 1"}, Config{Method: "quark", Raw: []byte(`{"layer_quant_config":{"*q_proj":{"weight":{"dtype":"fp4","scale_format":"e5m3"}}}}`)}, "m.weight_scale", "e5m3"},
		{"nvfp4 without second scale", map[string]string{"weight": "U8 4 16", "weight_scale": "F8_E4M3 4 2"}, Config{}, "m.weight", "neither weight_scale_2"},
		{"nvfp4 with a second scale a row", map[string]string{"weight": "U8 4 16", "weight_scale": "F8_E4M3 4 2", "weight_scale_2": "F32 4"}, Config{}, "m.weight_scale_2", "expected one F32"},
		{"packed without scale", map[string]string{"weight_packed": "I32 4 4"}, Config{}, "m.weight_scale", "missing"},
		{"gptq without zeros", map[string]string{"qweight": "I32 8 64", "scales": "F16 1 64"}, Config{Method: "gptq"}, "m.qweight", "no known format"},
		{"gptq of 5 bits", map[string]string{"qweight": "I32 10 64", "qzeros": "I32 1 10", "scales": "F16 1 64"}, Config{Method: "gptq"}, "m.qzeros", "no known width"},
		{"gptq, bits disagree", map[string]string{"qweight": "I32 8 64", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "gptq", Bits: 8}, "m.qzeros", "shapes say 4 bits, the configuration 8"},
		{"gptq of unknown version", map[string]string{"qweight": "I32 8 64", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{}, "m.qzeros", "how zero points are stored"},
		{"gptq of another format", map[string]string{"qweight": "I32 8 64", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "gptq", Raw: []byte(`{"format":"bitblas"}`)}, "m.qzeros", "bitblas"},
		{"gptq planar, half a block", map[string]string{"qweight": "I32 3 32", "qzeros": "I32 1 6", "scales": "F16 1 32"}, Config{Method: "gptq", Raw: []byte(`{"checkpoint_format":"gptq_p"}`)}, "m.qweight", "planar blocks"},
		{"gptq for Marlin", map[string]string{"qweight": "I32 8 64", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "gptq", Raw: []byte(`{"checkpoint_format":"marlin"}`)}, "m.qzeros", "marlin"},
		{"awq gemv", map[string]string{"qweight": "I32 64 8", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "awq", Raw: []byte(`{"version":"gemv"}`)}, "m.qweight", "gemv"},
		{"awq of llm-awq", map[string]string{"qweight": "I32 64 8", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "awq", Raw: []byte(`{"checkpoint_format":"llm-awq"}`)}, "m.qweight", "llm-awq"},
		{"mlx, ambiguous", map[string]string{"weight": "U32 4 32", "scales": "F16 4 4", "biases": "F16 4 4"}, Config{}, "m.weight", "no declared bits"},
		{"mlx without scales", map[string]string{"weight": "U32 4 32"}, Config{Method: "mlx"}, "m.weight", "without scales"},
		{"mlx without biases", map[string]string{"weight": "U32 4 32", "scales": "F16 4 4"}, Config{}, "m.scales", "biases"},
		{"mlx, a global scale beside mxfp4", map[string]string{"weight": "U32 4 8", "scales": "U8 4 2", "global_scale": "F32"}, Config{}, "m.global_scale", "nvfp4"},
		{"mlx, a global scale beside affine", map[string]string{"weight": "U32 4 8", "scales": "F16 4 2", "biases": "F16 4 2", "global_scale": "F32"}, Config{}, "m.global_scale", "unknown"},
		{"mlx, a global scale a row", map[string]string{"weight": "U32 4 8", "scales": "U8 4 4", "global_scale": "F32 4"}, Config{}, "m.global_scale", "expected one F32"},
		{"gptqmodel fp8 of unknown semantics", map[string]string{"weight": "F8_E4M3 4 8", "weight_scale_inv": "F32 4"}, Config{Method: "fp8", Raw: []byte(`{"weight_scale_semantics":"log"}`)}, "m.weight_scale_inv", "weight_scale_semantics"},
		{"paroquant", map[string]string{"qweight": "I32 64 8", "qzeros": "I32 1 8", "scales": "F16 1 64", "theta": "F16 8 32", "pairs": "I16 8 64"}, Config{}, "m.qweight", "rotated"},
		{"paroquant, rotation elsewhere", map[string]string{"qweight": "I32 64 8", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "paroquant"}, "m.qweight", "rotation"},
		{"sinq", map[string]string{"W_q": "U8 64 8", "meta.scale": "F16 64 1", "meta.scale2": "F16 1 8"}, Config{}, "m.W_q", "scales of their own"},
		{"fouroversix", map[string]string{"quantized_weight_values": "U8 64 8", "quantized_weight_scale_factors": "F8_E4M3 64"}, Config{}, "m.quantized_weight_values", "tiles"},
		{"eetq of transformers", map[string]string{"weight": "I8 64 8", "weight_scales": "F16 8"}, Config{}, "m.weight", "permuted"},
		{"bnb without state", map[string]string{"weight": "U8 32 1", bnbAbsmax: "F32 1"}, Config{}, "m.weight.absmax", "without a quant_state"},
		{"bnb, state not fetched", map[string]string{"weight": "U8 32 1", bnbAbsmax: "F32 1", bnbStateNF4: "U8 10"}, Config{}, "m." + bnbStateNF4, "not there"},
		{"hqq without facts", map[string]string{"W_q": "U8 32 64", "scale": "F16 64 1", "zero": "F16 64 1"}, Config{}, "m.packing", "unknown"},
		{"int8 with SCB of another length", map[string]string{"weight": "I8 4 4", "SCB": "F32 3"}, Config{}, "m.SCB", "expected F32[4]"},
		{"impossible declaration", map[string]string{"weight": "F8_E4M3 8 8", "weight_scale": "F32 1"}, Config{Method: "fp8", Problem: "group_size 0"}, "m.weight", "group_size 0"},
		{"exl3", map[string]string{"trellis": "I16 4 4 4", "suh": "F16 4"}, Config{}, "m.trellis", "trellis"},
		{"aqlm", map[string]string{"codes": "I8 4 4 1", "codebooks": "F16 1 256 1 8"}, Config{}, "m.codes", "code books"},
		{"marlin", map[string]string{"B": "I32 4 4", "s": "F16 4 4"}, Config{}, "m.B", "tiles"},
		{"bitblas", map[string]string{"qweight": "I8 64 32", "zeros": "I8 2 32", "scales": "F16 64 2"}, Config{Method: "gptq"}, "m.qweight", "bitblas"},
		{"awq gemv_fast", map[string]string{"qweight": "I16 16 64", "qzeros": "F16 2 64", "scales": "F16 2 64"}, Config{Method: "awq"}, "m.qweight", "gemv-fast"},
		{"dfloat11", map[string]string{"encoded_exponent": "U8 10", "sign_mantissa": "U8 10"}, Config{}, "m.encoded_exponent", "shapes"},
		{"integers without a scale", map[string]string{"weight": "I8 4 4"}, Config{Method: "compressed-tensors"}, "m.weight", "without a scale"},
		{"unknown packing", map[string]string{"weight_packed": "I64 4 4", "weight_scale": "F16 4 1"}, Config{}, "m.weight_packed", "no known format"},
		{"bitnet of unknown class", map[string]string{"weight": "U8 4 4", "weight_scale": "BF16 1"}, Config{Method: "bitnet", Raw: []byte(`{"linear_class":"new"}`)}, "m.weight", "new"},
	} {
		t.Run(x.name, func(t *testing.T) {
			m, err := Recognise(shapes(x.tensors, x.config))
			var r *Refused
			if !errors.As(err, &r) {
				t.Fatalf("match %+v, error %v", m, err)
			}
			if r.Tensor != x.tensor || !strings.Contains(r.Error(), x.reason) {
				t.Errorf("refused %s: %s\nwant %s: ...%s...", r.Tensor, r, x.tensor, x.reason)
			}
		})
	}
}

// TestNotQuantized are groups that stay as they are.
func TestNotQuantized(t *testing.T) {
	for name, tensors := range map[string]map[string]string{
		"plain":                      {"weight": "BF16 8 8", "bias": "BF16 8"},
		"plain F8":                   {"weight": "F8_E4M3 8 8"},
		"norm with a scale":          {"scale": "F32 8"},
		"weights and a float scale":  {"weight": "BF16 8 8", "weight_scale": "F32 1"},
		"a buffer of integers":       {"": "I64 8"},
		"integers, nothing declared": {"weight": "I8 8 8"},
		"scales alone, undeclared":   {"k_scale": "F32 1"},
	} {
		if m, err := Recognise(shapes(tensors, Config{})); m != nil || err != nil {
			t.Errorf("%s: match %+v, error %v", name, m, err)
		}
	}
}

// TestTorchAOParameters: parts of parameters that are no weights are refused, not passed on; those of plain tensors stay.
func TestTorchAOParameters(t *testing.T) {
	metadata := map[string]string{"tensor_names": `["e.gate_up_proj", "e._bias_of_x"]`, "e.gate_up_proj": `{"_type": "Int8Tensor"}`, "e._bias_of_x": `{"_type": "Tensor"}`}
	for _, name := range []string{"e._gate_up_proj_qdata", "e._gate_up_proj_scale", "e._gate_up_proj_zero_point"} {
		module, suffix := Split(name)
		g := Group{Module: module, Tensors: map[string]Tensor{suffix: {Name: name, DType: "I8", Shape: []int64{2, 4, 8}}}, Metadata: metadata}
		var refused *Refused
		if m, err := Recognise(g); m != nil || !errors.As(err, &refused) || refused.Tensor != name || !strings.Contains(refused.Reason, "e.gate_up_proj") {
			t.Errorf("%s: match %+v, error %v", name, m, err)
		}
	}
	g := Group{Module: "e._bias_of_x", Tensors: map[string]Tensor{"": {Name: "e._bias_of_x", DType: "F32", Shape: []int64{8}}}, Metadata: metadata}
	if m, err := Recognise(g); m != nil || err != nil {
		t.Errorf("a plain tensor: match %+v, error %v", m, err)
	}
}

// TestGPTQEmbeddings: what GPTQModel packs along the vocabulary is refused, not turned.
func TestGPTQEmbeddings(t *testing.T) {
	g := shapes(map[string]string{"qweight": "I32 8 64", "qzeros": "I32 1 8", "scales": "F16 1 64"}, Config{Method: "gptq"})
	g.Module = "model.embed_tokens"
	var refused *Refused
	if m, err := Recognise(g); m != nil || !errors.As(err, &refused) || !strings.Contains(refused.Reason, "embedding") {
		t.Errorf("match %+v, error %v", m, err)
	}
	g.Module = "lm_head"
	if m, err := Recognise(g); err != nil || !slices.Equal(m.Shape, []int64{64, 64}) {
		t.Errorf("lm_head: match %+v, error %v", m, err)
	}
}

// TestActivationScalesAreDropped where quantization is declared.
func TestActivationScalesAreDropped(t *testing.T) {
	m, err := Recognise(shapes(map[string]string{"k_scale": "F32 1", "v_scale": "F32 1"}, Config{Method: "fp8"}))
	if err != nil || m == nil || m.Codec != nil || !slices.Equal(m.Drop, []string{"k_scale", "v_scale"}) {
		t.Errorf("match %+v, error %v", m, err)
	}
	m, err = Recognise(shapes(map[string]string{"weight": "F8_E4M3 8 8", "weight_scale": "F32 1", "input_scale": "F32 1", "bias": "BF16 8"}, Config{Method: "fp8"}))
	if err != nil || !slices.Equal(m.Drop, []string{"input_scale", "weight", "weight_scale"}) {
		t.Errorf("match %+v, error %v", m, err)
	}
}

// TestIndexOutOfRange: an impossible group index is an error of the read.
func TestIndexOutOfRange(t *testing.T) {
	for name, build := range map[string]func(*stream) (map[string]file, []string){
		"gptq": gptqBulk(64, 32, 4, 16, true), "pack-quantized": ctBulk(24, 96, 4, 32, true, true),
	} {
		for _, bad := range []uint32{99, 0xFFFFFFFE} {
			files, _ := build(&stream{name: name})
			index := map[string]string{"gptq": "g_idx", "pack-quantized": "weight_g_idx"}[name]
			f := files[index]
			copy(f.data[20:], le32(bad))
			m, in := recognise(t, files, Config{Method: "gptq"}, nil)
			c := Named(m.Codec, func() string { return m.Name })
			err := c.Decode(make([]byte, c.Len()), 0, in)
			if !errors.Is(err, plan.ErrBadInput) || !strings.Contains(err.Error(), "g_idx[5]") || !strings.HasPrefix(err.Error(), "tensor m.weight: ") {
				t.Errorf("%s with %d: error %v", name, bad, err)
			}
		}
	}
}

// TestUnfilledGroupIndex: compressed-tensors leaves -1 in an index that it does not use.
func TestUnfilledGroupIndex(t *testing.T) {
	files, _ := ctBulk(24, 96, 4, 32, true, true)(&stream{name: "x"})
	plain, _ := ctBulk(24, 96, 4, 32, true, false)(&stream{name: "x"})
	copy(files["weight_g_idx"].data[8:], le32(0xFFFFFFFF))
	m, in := recognise(t, files, Config{}, nil)
	p, pin := recognise(t, plain, Config{}, nil)
	if !slices.Equal(whole(t, m.Codec, in), whole(t, p.Codec, pin)) {
		t.Error("groups are not taken in order")
	}
}

func TestGrid(t *testing.T) {
	for _, x := range []struct {
		weight, scale []int64
		block         [2]int
		bm, bn        int64 // 0: refused
	}{
		{[]int64{576, 7168}, []int64{5, 56}, [2]int{128, 128}, 128, 128},
		{[]int64{192, 128}, []int64{2, 1}, [2]int{}, 128, 128}, // not 96
		{[]int64{192, 128}, []int64{2, 1}, [2]int{96, 128}, 96, 128},
		{[]int64{256, 64}, []int64{8, 2}, [2]int{128, 128}, 32, 32}, // config is wrong here
		{[]int64{384, 256}, []int64{384, 8}, [2]int{128, 128}, 1, 32},
		{[]int64{64, 48}, []int64{64, 1}, [2]int{}, 1, 48},
		{[]int64{64, 48}, []int64{64}, [2]int{}, 1, 48},
		{[]int64{64, 48}, nil, [2]int{}, 64, 48},
		{[]int64{64, 48}, []int64{1, 1}, [2]int{128, 128}, 64, 48},
		{[]int64{4, 64, 48}, []int64{4, 1, 1}, [2]int{}, 64, 48},
		{[]int64{4, 64, 48}, []int64{4}, [2]int{}, 64, 48},
		{[]int64{4, 64, 48}, []int64{4, 1, 48}, [2]int{}, 64, 1},
		{[]int64{256, 512}, []int64{2, 1, 4, 1}, [2]int{128, 128}, 128, 128},
		{[]int64{100, 100}, []int64{3, 3}, [2]int{}, 0, 0},
		{[]int64{100, 100}, []int64{101, 100}, [2]int{}, 0, 0},
		{[]int64{100, 0}, []int64{1}, [2]int{}, 0, 0},
		{[]int64{1 << 40, 1 << 40}, []int64{1}, [2]int{}, 0, 0},
	} {
		g, err := findGrid(x.weight, x.scale, x.block)
		if (err == nil) != (x.bm > 0) || err == nil && (g.bm != x.bm || g.bn != x.bn) {
			t.Errorf("weight %v, scale %v, config %v: blocks %dx%d, error %v", x.weight, x.scale, x.block, g.bm, g.bn, err)
		}
	}
}

func TestSplit(t *testing.T) {
	for _, x := range [][3]string{
		{"model.layers.0.mlp.down_proj.weight", "model.layers.0.mlp.down_proj", "weight"},
		{"model.layers.0.mlp.down_proj.weight_scale_inv", "model.layers.0.mlp.down_proj", "weight_scale_inv"},
		{"model.layers.0.mlp.experts.gate_up_proj", "model.layers.0.mlp.experts.gate_up_proj", ""},
		{"model.layers.0.mlp.experts.gate_up_proj_blocks", "model.layers.0.mlp.experts.gate_up_proj", "_blocks"},
		{"model.layers.0.mlp.experts.gate_up_proj_scale_inv", "model.layers.0.mlp.experts.gate_up_proj", "_scale_inv"},
		{"model.layers.0.mlp.experts.gate_up_proj_weight_scale_2", "model.layers.0.mlp.experts.gate_up_proj", "_weight_scale_2"},
		{"block.0.mlp.mlp1_weight.blocks", "block.0.mlp.mlp1_weight", "blocks"},
		{"a.b.weight.quant_state.bitsandbytes__nf4", "a.b", bnbStateNF4},
		{"a.b.weight.absmax", "a.b", bnbAbsmax},
		{"a.b._weight_qdata", "a.b", "._weight_qdata"},
		{"a.b.._weight_qdata", "a.b.", "._weight_qdata"},
		{"scaled_fp8", "", "scaled_fp8"},
		{"weight", "", "weight"},
		{"layers.0.attn.wq_a.scale", "layers.0.attn.wq_a", "scale"},
		{"model.norm.unknown", "model.norm.unknown", ""},
		{"", "", ""},
		{".", ".", ""},
		{"_", "_", ""},
	} {
		module, suffix := Split(x[0])
		if module != x[1] || suffix != x[2] {
			t.Errorf("Split(%q) = %q, %q", x[0], module, suffix)
		}
		if got := TensorName(module, suffix); got != x[0] {
			t.Errorf("TensorName(%q, %q) = %q", module, suffix, got)
		}
	}
}

func TestFindConfig(t *testing.T) {
	for _, x := range []struct {
		name    string
		files   map[string]string
		want    Config // but Raw
		problem string
	}{
		{name: "nothing", files: map[string]string{"config.json": `{"hidden_size": 8, "eps": NaN, "bound": -Infinity}`}},
		{name: "fp8", files: map[string]string{"config.json": `{"x": Infinity, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "fmt": "e4m3"}}`},
			want: Config{Method: "fp8", Block: [2]int{128, 128}, Source: "config.json quantization_config"}},
		{name: "null block", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "fp8", "weight_block_size": null}}`},
			want: Config{Method: "fp8", Source: "config.json quantization_config"}},
		{name: "nested", files: map[string]string{"config.json": `{"text_config": {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1}}}`},
			want: Config{Method: "gptq", Bits: 4, GroupSize: -1, Source: "config.json text_config quantization_config"}},
		{name: "compressed-tensors", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"num_bits": 4, "group_size": 32}}}}}`},
			want: Config{Method: "compressed-tensors", Bits: 4, GroupSize: 32, Source: "config.json quantization_config"}},
		{name: "block as text", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 8, "block_structure": "128x64"}}}}}`},
			want: Config{Method: "compressed-tensors", Bits: 8, Block: [2]int{128, 64}, Source: "config.json quantization_config"}},
		{name: "mixed groups", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4}}, "b": {"weights": {"num_bits": 8}}}}}`},
			want: Config{Method: "compressed-tensors", Source: "config.json quantization_config"}},
		{name: "mlx", files: map[string]string{"config.json": `{"quantization": {"bits": 4, "group_size": 64}}`}, want: Config{Method: "mlx", Bits: 4, GroupSize: 64, Source: "config.json quantization"}},
		{name: "old gptq", files: map[string]string{"quantize_config.json": `{"bits": 4, "group_size": 128}`}, want: Config{Method: "gptq", Bits: 4, GroupSize: 128, Source: "quantize_config.json"}},
		{name: "old awq", files: map[string]string{"quant_config.json": `{"w_bit": 4, "q_group_size": 128}`}, want: Config{Method: "awq", Bits: 4, GroupSize: 128, Source: "quant_config.json"}},
		{name: "modelopt", files: map[string]string{"config.json": `{}`, "hf_quant_config.json": `{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}`},
			want: Config{Method: "modelopt", GroupSize: 16, Source: "hf_quant_config.json quantization"}},
		{name: "group size 0", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "gptq", "group_size": 0}}`}, problem: "group_size 0"},
		{name: "bits 64", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "gptq", "bits": 64}}`}, problem: "bits 64"},
		{name: "block of one", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128]}}`}, problem: "weight_block_size [128]"},
		{name: "empty block", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 0]}}`}, problem: "weight_block_size [0, 0]"},
		{name: "huge block", files: map[string]string{"config.json": `{"quantization_config": {"quant_method": "fp8", "weight_block_size": [99999999, 1]}}`}, problem: "weight_block_size"},
	} {
		files := map[string][]byte{}
		for name, content := range x.files {
			files[name] = []byte(content)
		}
		got, err := FindConfig(files)
		if err != nil {
			t.Errorf("%s: %v", x.name, err)
			continue
		}
		if x.problem != "" {
			if !strings.Contains(got.Problem, x.problem) {
				t.Errorf("%s: problem %q, want %q", x.name, got.Problem, x.problem)
			}
			continue
		}
		if got.Method != x.want.Method || got.Bits != x.want.Bits || got.GroupSize != x.want.GroupSize || got.Block != x.want.Block || got.Source != x.want.Source || got.Problem != "" {
			t.Errorf("%s: %+v", x.name, got)
		}
	}
	for text, want := range map[string]bool{`{"bits": 4, "group_size": 64}`: false, `{"bits": 4, "model.lm_head": {"bits": 8}}`: true, `{"a.b": false}`: false} {
		if c, err := FindConfig(map[string][]byte{"config.json": []byte(`{"quantization": ` + text + `}`)}); err != nil || c.ByModule() != want {
			t.Errorf("%s: by module %t, error %v", text, c.ByModule(), err)
		}
	}
	if _, err := FindConfig(map[string][]byte{"config.json": []byte(`{`)}); err == nil {
		t.Error("no error for what is not JSON")
	}
}
