package quant

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// renamed is a vector under other names, dtypes and shapes: the same bytes must decode to the same values.
type renamed struct {
	name     string
	vector   string
	format   string
	tensors  map[string]string // suffix here, to "suffix there dtype shape"
	extra    map[string]file
	config   Config
	metadata map[string]string
	output   string // name of the dequantized tensor
	shape    []int64
	drop     []string
}

func ao(kind, data string) map[string]string {
	return map[string]string{"m.weight": `{"_type": "` + kind + `", "_data": ` + data + `, "_tensor_data_names": ["qdata", "scale"]}`}
}

func renamings() []renamed {
	marker := func(s string) map[string]file {
		return map[string]file{"comfy_quant": {"U8", []int64{int64(len(s))}, []byte(s)}}
	}
	return []renamed{
		{name: "fused experts", vector: "fp8blk-f32", format: "fp8", tensors: map[string]string{"": "weight F8_E4M3 1 200 300", "_scale_inv": "weight_scale_inv F32 1 2 3"},
			output: "m", shape: []int64{1, 200, 300}, drop: []string{"", "_scale_inv"}},
		{name: "fused experts, older", vector: "fp8blk-f32", format: "fp8", tensors: map[string]string{"": "weight F8_E4M3 1 200 300", "_scales_inv": "weight_scale_inv F32 1 2 3"},
			output: "m", shape: []int64{1, 200, 300}, drop: []string{"", "_scales_inv"}},
		{name: "rows as experts", vector: "fp8channel-f32", format: "fp8", tensors: map[string]string{"weight": "weight F8_E4M3 4 16 48", "weight_scale": "weight_scale F32 4 16 1", "input_scale": "weight_scale F32 64"},
			output: "m.weight", shape: []int64{4, 16, 48}, drop: []string{"input_scale", "weight", "weight_scale"}},
		{name: "ModelOpt blocks", vector: "fp8blk-f32", format: "fp8", tensors: map[string]string{"weight": "weight F8_E4M3 200 300", "weight_scale": "weight_scale_inv F32 2 1 3 1"}, config: Config{Block: [2]int{128, 128}},
			output: "m.weight", shape: []int64{200, 300}, drop: []string{"weight", "weight_scale"}},
		{name: "Mistral", vector: "fp8tensor-f32", format: "fp8", tensors: map[string]string{"weight": "weight F8_E4M3 16 48", "qscale_weight": "weight_scale F32", "qscale_act": "weight_scale F32"},
			output: "m.weight", shape: []int64{16, 48}, drop: []string{"qscale_act", "qscale_weight", "weight"}},
		{name: "DeepSeek-V4 experts", vector: "mxfp4-pack", format: "deepseek-fp4", tensors: map[string]string{"weight": "weight_packed I8 48 48", "scale": "weight_scale F8_E8M0 48 3"},
			output: "m.weight", shape: []int64{48, 96}, drop: []string{"scale", "weight"}},
		{name: "F4 codes", vector: "mxfp4-pack", format: "deepseek-fp4", tensors: map[string]string{"weight": "weight_packed F4 48 96", "scale": "weight_scale F8_E8M0 48 3"},
			output: "m.weight", shape: []int64{48, 96}, drop: []string{"scale", "weight"}},
		{name: "Quark", vector: "mxfp4-pack", format: "mxfp4", tensors: map[string]string{"weight": "weight_packed U8 48 48", "weight_scale": "weight_scale U8 48 3"},
			output: "m.weight", shape: []int64{48, 96}, drop: []string{"weight", "weight_scale"}},
		{name: "MXFP4 experts", vector: "mxfp4-pack", format: "mxfp4", tensors: map[string]string{"weight_packed": "weight_packed U8 6 8 48", "weight_scale": "weight_scale U8 6 8 3"},
			output: "m.weight", shape: []int64{6, 8, 96}, drop: []string{"weight_packed", "weight_scale"}},
		{name: "gpt-oss, original files", vector: "mxfp4-pack", format: "gpt-oss", tensors: map[string]string{"blocks": "weight_packed U8 6 8 3 16", "scales": "weight_scale U8 6 8 3"},
			output: "m", shape: []int64{6, 8, 96}, drop: []string{"blocks", "scales"}},
		{name: "MLX mxfp4", vector: "mxfp4-pack", format: "mlx", tensors: map[string]string{"weight": "weight_packed U32 48 12", "scales": "weight_scale U8 48 3"},
			output: "m.weight", shape: []int64{48, 96}, drop: []string{"scales", "weight"}},
		{name: "MLX mxfp8", vector: "mxfp8", format: "mlx", tensors: map[string]string{"weight": "weight U32 40 24", "scales": "weight_scale_inv U8 40 3"},
			output: "m.weight", shape: []int64{40, 96}, drop: []string{"scales", "weight"}},
		{name: "metal", vector: "mlx-4b-g64", format: "mlx", tensors: map[string]string{"weight": "weight U32 16 16", "scales": "scales BF16 16 2", "qbiases": "biases BF16 16 2"}, config: Config{Bits: 4, GroupSize: 64},
			output: "m.weight", shape: []int64{16, 128}, drop: []string{"qbiases", "scales", "weight"}},
		{name: "NVFP4, fused experts", vector: "nvfp4-modelopt", format: "nvfp4", tensors: map[string]string{"": "weight U8 1 32 32", "_weight_scale": "weight_scale F8_E4M3 1 32 4", "_weight_scale_2": "weight_scale_2 F32 1"},
			output: "m", shape: []int64{1, 32, 64}, drop: []string{"", "_weight_scale", "_weight_scale_2"}},
		{name: "packed experts", vector: "ct-int4-sym", format: "pack-quantized", tensors: map[string]string{"weight_packed": "weight_packed I32 3 8 12", "weight_scale": "weight_scale BF16 3 8 3"},
			config: Config{Raw: []byte(`{"config_groups":{"g":{"weights":{"num_bits":4,"group_size":32}}}}`)},
			output: "m.weight", shape: []int64{3, 8, 96}, drop: []string{"weight_packed", "weight_scale"}},
		{name: "AutoRound as GPTQ", vector: "gptq-v1-4b-perm", format: "gptq", config: Config{Method: "auto-round", Raw: []byte(`{"packing_format":"auto_round:auto_gptq"}`)},
			tensors: map[string]string{"qweight": "qweight I32 8 32", "qzeros": "qzeros I32 4 4", "scales": "scales F16 4 32", "g_idx": "g_idx I32 64"},
			output:  "m.weight", shape: []int64{32, 64}, drop: []string{"g_idx", "qweight", "qzeros", "scales"}},
		{name: "AutoRound's own", vector: "gptq-v2-4b", format: "gptq", config: Config{Method: "auto-round", GroupSize: 16, Raw: []byte(`{"packing_format":"auto_round:gptqmodel"}`)},
			tensors: map[string]string{"qweight": "qweight I32 8 32", "qzeros": "qzeros I32 4 4", "scales": "scales F16 4 32"},
			output:  "m.weight", shape: []int64{32, 64}, drop: []string{"qweight", "qzeros", "scales"}},
		{name: "torchao Float8Tensor", vector: "fp8channel-f32", format: "torchao", tensors: map[string]string{aoData: "weight F8_E4M3 64 48", aoScale: "weight_scale F32 64 1"}, metadata: ao("Float8Tensor", `{"block_size": [1, 48]}`),
			output: "m.weight", shape: []int64{64, 48}, drop: []string{aoData, aoScale}},
		{name: "torchao MXTensor, F8", vector: "mxfp8", format: "torchao", tensors: map[string]string{aoData: "weight F8_E4M3 40 96", aoScale: "weight_scale_inv F8_E8M0 40 3"}, metadata: ao("MXTensor", `{"block_size": 32}`),
			output: "m.weight", shape: []int64{40, 96}, drop: []string{aoData, aoScale}},
		{name: "torchao MXTensor, F4", vector: "mxfp4-pack", format: "torchao", tensors: map[string]string{aoData: "weight_packed U8 48 48", aoScale: "weight_scale F8_E8M0 48 3"},
			metadata: ao("MXTensor", `{"block_size": 32, "elem_dtype": {"_type": "torch.dtype", "_data": "float4_e2m1fn_x2"}}`),
			output:   "m.weight", shape: []int64{48, 96}, drop: []string{aoData, aoScale}},
		{name: "torchao NVFP4Tensor", vector: "nvfp4-modelopt", format: "torchao", tensors: map[string]string{aoData: "weight U8 32 32", aoScale: "weight_scale F8_E4M3 32 4", aoPerTensor: "weight_scale_2 F32"}, metadata: ao("NVFP4Tensor", `{"block_size": 16}`),
			output: "m.weight", shape: []int64{32, 64}, drop: []string{aoPerTensor, aoData, aoScale}},
		{name: "Comfy, scaled", vector: "fp8tensor-f32", format: "comfy", tensors: map[string]string{"weight": "weight F8_E4M3 16 48", "weight_scale": "weight_scale F32"}, extra: marker(`{"format": "float8_e4m3fn"}`),
			output: "m.weight", shape: []int64{16, 48}, drop: []string{"comfy_quant", "weight", "weight_scale"}},
		{name: "Comfy, legacy", vector: "fp8tensor-f32", format: "comfy", tensors: map[string]string{"weight": "weight F8_E4M3 16 48", "scale_weight": "weight_scale F32", "scale_input": "weight_scale F32"},
			output: "m.weight", shape: []int64{16, 48}, drop: []string{"scale_input", "scale_weight", "weight"}},
		{name: "Comfy, a convolution", vector: "fp8tensor-f32", format: "comfy", tensors: map[string]string{"weight": "weight F8_E4M3 16 12 2 2", "weight_scale": "weight_scale F32"}, extra: marker(`{"format": "float8_e4m3fn"}`),
			output: "m.weight", shape: []int64{16, 12, 2, 2}, drop: []string{"comfy_quant", "weight", "weight_scale"}},
		{name: "Comfy by metadata", vector: "nvfp4-comfy", format: "comfy", tensors: map[string]string{"weight": "weight U8 48 24", "weight_scale": "weight_scale F8_E4M3 128 4", "weight_scale_2": "weight_scale_2 F32", "bias": "bias BF16 40"},
			metadata: map[string]string{"_quantization_metadata": `{"format_version": "1.0", "layers": {"m": {"format": "nvfp4"}}}`},
			output:   "m.weight", shape: []int64{40, 48}, drop: []string{"weight", "weight_scale", "weight_scale_2"}},
	}
}

func TestNamesAndShapes(t *testing.T) {
	for _, x := range renamings() {
		t.Run(x.name, func(t *testing.T) {
			all := bulks()
			i := slices.IndexFunc(all, func(b bulk) bool { return b.name == x.vector })
			vector, _ := all[i].make(&stream{name: x.vector})
			files := map[string]file{}
			for suffix, from := range x.tensors {
				other, description := cut(from)
				d := shapes(map[string]string{suffix: description}, Config{}).Tensors[suffix]
				files[suffix] = file{d.DType, d.Shape, vector[other].data}
			}
			for suffix, f := range x.extra {
				files[suffix] = f
			}
			m, in := recognise(t, files, x.config, x.metadata)
			if m.Format != x.format || m.Name != x.output || !slices.Equal(m.Shape, x.shape) || !slices.Equal(m.Drop, x.drop) {
				t.Errorf("%s %s%v without %q; want %s %s%v without %q", m.Format, m.Name, m.Shape, m.Drop, x.format, x.output, x.shape, x.drop)
			}
			if got := hash(whole(t, m.Codec, in)); got != all[i].hash {
				t.Errorf("other values than the vector's")
			}
		})
	}
}

// cut takes the first word off.
func cut(s string) (first, rest string) {
	i := slices.Index([]byte(s), ' ')
	return s[:i], s[i+1:]
}

// TestSwizzledMXFP8 lays the scales of a vector in tiles.
func TestSwizzledMXFP8(t *testing.T) {
	all := bulks()
	vector := all[slices.IndexFunc(all, func(b bulk) bool { return b.name == "mxfp8" })]
	files, _ := vector.make(&stream{name: "mxfp8"})
	tiles := make([]byte, 128*4)
	for r := range 40 {
		for c := range 3 {
			tiles[r%32*16+r/32*4+c] = files["weight_scale_inv"].data[3*r+c]
		}
	}
	description := `{"format": "mxfp8"}`
	m, in := recognise(t, map[string]file{
		"weight": files["weight"], "weight_scale": {"F8_E8M0", []int64{128, 4}, tiles}, "comfy_quant": {"U8", []int64{int64(len(description))}, []byte(description)},
	}, Config{}, nil)
	if hash(whole(t, m.Codec, in)) != vector.hash || len(m.Warnings) != 1 {
		t.Errorf("other values than the vector's, or warnings %q", m.Warnings)
	}
	checkWindows(t, m.Codec, in)
}

// TestInt4RowPairs decodes ModelOpt's INT4 by its definition.
func TestInt4RowPairs(t *testing.T) {
	s := &stream{name: "int4-row-pairs"}
	data, scales := s.take(3*256), s.bf16s(6*2)
	m, in := recognise(t, map[string]file{"weight": {"U8", []int64{3, 256}, data}, "weight_scale": {"BF16", []int64{6, 2}, scales}, "pre_quant_scale": {"BF16", []int64{256}, nil}}, Config{}, nil)
	var want []byte
	for row := range 6 {
		for c := range 256 {
			code := int(data[row/2*256+c]>>(row%2*4)) & 15
			if code > 7 {
				code -= 16
			}
			want = append(want, le16(bf16(float32(code)*numBF16.at(scales, row*2+c/128)))...)
		}
	}
	if !slices.Equal(whole(t, m.Codec, in), want) || slices.Contains(m.Drop, "pre_quant_scale") || len(m.Warnings) != 1 {
		t.Errorf("values differ, or dropped %q, warned %q", m.Drop, m.Warnings)
	}
	checkWindows(t, m.Codec, in)
}

// TestOneExpertNeedsItsBytesOnly: a window inside one expert of a stack needs no bytes of another.
func TestOneExpertNeedsItsBytesOnly(t *testing.T) {
	for _, tensors := range []map[string]string{
		{"weight": "F8_E4M3 5 200 300", "weight_scale_inv": "F32 5 2 3"},
		{"weight": "F8_E4M3 5 64 96", "weight_scale": "U8 5 64 3"},
		{"weight": "F8_E4M3 5 64 96", "weight_scale": "F32 5 1 1"},
		{"weight_packed": "U8 5 64 48", "weight_scale": "U8 5 64 3"},
		{"weight": "U8 5 64 48", "weight_scale": "F8_E4M3 5 64 6", "weight_scale_2": "F32 5"},
		{"_blocks": "U8 5 64 3 16", "_scales": "U8 5 64 3"},
		{"weight": "U32 5 64 16", "scales": "BF16 5 64 2", "biases": "BF16 5 64 2"},
	} {
		m, err := Recognise(shapes(tensors, Config{Bits: 4, GroupSize: 64}))
		if err != nil || m == nil {
			t.Fatalf("%v: match %v, error %v", tensors, m, err)
		}
		codecs := []plan.Codec{m.Codec}
		if m.Rows != nil {
			codecs = append(codecs, m.Rows)
		}
		for _, c := range codecs {
			each, lens := c.Len()/5, c.InputLens()
			rapid.Check(t, func(r *rapid.T) {
				e := rapid.Int64Range(0, 4).Draw(r, "expert")
				off := rapid.Int64Range(0, each-1).Draw(r, "off")
				n := rapid.Int64Range(1, each-off).Draw(r, "n")
				for _, need := range c.Needs(e*each+off, n) {
					size := lens[need.Input] / 5
					if need.Start < e*size || need.End > (e+1)*size {
						r.Fatalf("%s: [%d, +%d) of expert %d needs [%d, %d) of input %d, of which %d bytes are an expert's", c, off, n, e, need.Start, need.End, need.Input, size)
					}
				}
			})
		}
	}
}

// TestTilesReadEveryByteOnce: decoding column-packed formats tile by tile asks for hardly more than the packed bytes. (The scales of gpt-oss, a
// sixteenth of its codes, are asked for whole by every tile of an expert; they are not worth a range for each row.)
func TestTilesReadEveryByteOnce(t *testing.T) {
	for _, tensors := range []map[string]string{
		{"qweight": "I32 512 4096", "qzeros": "I32 32 512", "scales": "F16 32 4096", "g_idx": "I32 4096"},
		{"qweight": "I32 384 4096", "qzeros": "I32 32 384", "scales": "F16 32 4096"},
		{"qweight": "I32 4096 512", "qzeros": "I32 32 512", "scales": "F16 32 4096"},
		{"_blocks": "U8 2 2880 90 16", "_scales": "U8 2 2880 90"},
	} {
		m, err := Recognise(shapes(tensors, Config{Method: "gptq"}))
		if err != nil || m == nil {
			t.Fatalf("%v: match %v, error %v", tensors, m, err)
		}
		var packed, asked int64
		for i, n := range m.Codec.InputLens() {
			if m.Inputs[i] != "_scales" {
				packed += n
			}
		}
		tile := m.Codec.Tile()
		if tile < 64*2*m.Shape[len(m.Shape)-1] {
			t.Errorf("%s: a tile of %d bytes is less than 64 rows", m.Codec, tile)
		}
		for off := int64(0); off < m.Codec.Len(); off += tile {
			for _, need := range m.Codec.Needs(off, min(tile, m.Codec.Len()-off)) {
				if m.Inputs[need.Input] != "_scales" {
					asked += need.End - need.Start
				}
			}
		}
		if float64(asked) > 1.1*float64(packed) {
			t.Errorf("%s: tiles ask for %d bytes of %d, %.2f times as many", m.Codec, asked, packed, float64(asked)/float64(packed))
		}
	}
}
