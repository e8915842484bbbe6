package testrel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"
	"strings"

	"weightfs/sources/safetensors"
)

// vector is one release of the group formats: a single module in one weight format, filled from a stream, and the SHA-256 of the BF16
// tensor that it must dequantize to. The hashes and the order of the draws were made in plain Python and checked with NumPy, with no
// code of this repository.
type vector struct {
	name     string
	stream   string // if not name
	tensor   string // of the dequantized tensor
	sha256   string
	config   string // members of config.json
	files    []File // besides config.json
	metadata map[string]string
	fill     func(s *stream, module string) []literal
	module   string // if not [formatModule]
}

// formatModule is the module that most vectors are.
const formatModule = "model.layers.0.mlp.down_proj"

// literal is a tensor whose bytes are known.
type literal struct {
	name  string
	dtype safetensors.DType
	shape []int64
	data  []byte
}

func (v *vector) release() *Release {
	module, name := v.module, v.stream
	if module == "" {
		module = formatModule
	}
	if name == "" {
		name = v.name
	}
	s := newShard("model.safetensors")
	s.metadata = v.metadata
	for _, x := range v.fill(&stream{name: name}, module) {
		s.add(x.name, x.dtype, Fill{}, x.shape...)
		s.tensors[len(s.tensors)-1].data = x.data
	}
	config := "{\n  \"architectures\": [\"DemoForCausalLM\"],\n  \"model_type\": \"demo\",\n  \"torch_dtype\": \"bfloat16\"" + v.config + "\n}\n"
	r := newRelease(v.name, append(v.files, s.file(), text("config.json", config))...)
	tensor := v.tensor
	if tensor == "" {
		tensor = module + ".weight"
	}
	r.Digests = map[string]string{tensor: v.sha256}
	return r
}

func formatEntries() []entry {
	var out []entry
	for _, v := range vectors() {
		out = append(out, entry{name: v.name, group: "formats", make: v.release})
	}
	return out
}

// stream is SHA-256("weightfs-quant-v1:" + name + ":" + c) for c = 0, 1, 2, ... in decimal, read in order.
type stream struct {
	name string
	c    int
	left []byte
}

func (s *stream) take(n int) []byte {
	for len(s.left) < n {
		h := sha256.Sum256(fmt.Appendf(nil, "weightfs-quant-v1:%s:%d", s.name, s.c))
		s.left, s.c = append(s.left, h[:]...), s.c+1
	}
	out := bytes.Clone(s.left[:n])
	s.left = s.left[n:]
	return out
}

// u8s, u16s and u32s draw n numbers of that width, each x become base + x & mask.
func (s *stream) u8s(n int, mask, base byte) []byte {
	b := s.take(n)
	for i := range b {
		b[i] = base + b[i]&mask
	}
	return b
}

func (s *stream) u16s(n int, mask, base uint16) []byte {
	b := s.take(2 * n)
	for i := 0; i < len(b); i += 2 {
		binary.LittleEndian.PutUint16(b[i:], base+binary.LittleEndian.Uint16(b[i:])&mask)
	}
	return b
}

func (s *stream) u32s(n int, mask, base uint32) []byte {
	b := s.take(4 * n)
	for i := 0; i < len(b); i += 4 {
		binary.LittleEndian.PutUint32(b[i:], base+binary.LittleEndian.Uint32(b[i:])&mask)
	}
	return b
}

func (s *stream) f32s(n int) []byte  { return s.u32s(n, 0x01FFFFFF, 0x39000000) }
func (s *stream) bf16s(n int) []byte { return s.u16s(n, 0x03FF, 0x3900) }
func (s *stream) f16s(n int) []byte  { return s.u16s(n, 0x0FFF, 0x1C00) }
func (s *stream) e8m0s(n int) []byte { return s.u8s(n, 15, 112) }
func (s *stream) e4m3s(n int) []byte { return s.u8s(n, 0x3F, 0x30) }

// scale draws n scales of a dtype.
func (s *stream) scale(d safetensors.DType, n int) []byte {
	switch d {
	case safetensors.F32:
		return s.f32s(n)
	case safetensors.BF16:
		return s.bf16s(n)
	}
	return s.e8m0s(n)
}

// fp8Vector is one-byte codes [rows, cols] with a scale for each block of bm by bn, under the name side.
func fp8Vector(rows, cols, bm, bn int64, code safetensors.DType, side string, scale safetensors.DType) func(*stream, string) []literal {
	return func(s *stream, m string) []literal {
		shape := []int64{ceil(rows, bm), ceil(cols, bn)}
		if shape[0]*shape[1] == 1 {
			shape = []int64{1}
		}
		return []literal{
			{m + ".weight", code, []int64{rows, cols}, s.take(int(rows * cols))},
			{m + side, scale, shape, s.scale(scale, int(count(shape)))},
		}
	}
}

// ctVector is compressed-tensors' packed integers: codes of b bits, a scale for each group of columns.
func ctVector(rows, cols, b, group int64, asym, permuted bool) func(*stream, string) []literal {
	return func(s *stream, m string) []literal {
		words, groups := ceil(cols*b, 32), cols/group
		out := []literal{
			{m + ".weight_packed", safetensors.I32, []int64{rows, words}, s.take(int(4 * rows * words))},
			{m + ".weight_scale", safetensors.BF16, []int64{rows, groups}, s.bf16s(int(rows * groups))},
			{m + ".weight_shape", safetensors.I64, []int64{2}, le64s(rows, cols)},
		}
		if asym {
			w := ceil(rows*b, 32)
			out = append(out, literal{m + ".weight_zero_point", safetensors.I32, []int64{w, groups}, s.take(int(4 * w * groups))})
		}
		if permuted {
			out = append(out, literal{m + ".weight_g_idx", safetensors.I32, []int64{cols}, groupIndex(cols, group, true)})
		}
		return out
	}
}

func le64s(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

// groupIndex is the group of each of n columns: k / group, or a permutation of it.
func groupIndex(n, group int64, permuted bool) []byte {
	var b []byte
	for k := range n {
		g := k / group
		if permuted {
			g = k * 5 % n / group
		}
		b = binary.LittleEndian.AppendUint32(b, uint32(g))
	}
	return b
}

func gptqVector(in, out, b, group int64, permuted bool) func(*stream, string) []literal {
	return func(s *stream, m string) []literal {
		rows, groups, zeros := in*b/32, in/group, out*b/32
		return []literal{
			{m + ".qweight", safetensors.I32, []int64{rows, out}, s.take(int(4 * rows * out))},
			{m + ".qzeros", safetensors.I32, []int64{groups, zeros}, s.take(int(4 * groups * zeros))},
			{m + ".scales", safetensors.F16, []int64{groups, out}, s.f16s(int(groups * out))},
			{m + ".g_idx", safetensors.I32, []int64{in}, groupIndex(in, group, permuted)},
		}
	}
}

func mlxVector(rows, cols, b, group int64) func(*stream, string) []literal {
	return func(s *stream, m string) []literal {
		words, groups := cols*b/32, []int64{rows, cols / group}
		n := int(count(groups))
		return []literal{
			{m + ".weight", safetensors.U32, []int64{rows, words}, s.take(int(4 * rows * words))},
			{m + ".scales", safetensors.BF16, groups, s.bf16s(n)},
			{m + ".biases", safetensors.BF16, groups, s.u16s(n, 0x03FF, 0xB900)},
		}
	}
}

// gptOSSVector is two experts of 32 by 96, named as transformers has them or as the original files do.
func gptOSSVector(blocks, scales string) func(*stream, string) []literal {
	return func(s *stream, m string) []literal {
		return []literal{
			{m + blocks, safetensors.U8, []int64{2, 32, 3, 16}, s.take(2 * 32 * 3 * 16)},
			{m + scales, safetensors.U8, []int64{2, 32, 3}, s.e8m0s(2 * 32 * 3)},
		}
	}
}

// nvfp4Vector is packed FP4 [rows, cols/2] with an E4M3 scale for 16 columns, and a second scale.
func nvfp4Vector(data, second string, shape []int64, last func(*stream) []byte) func(*stream, string) []literal {
	const rows, cols = 32, 64
	return func(s *stream, m string) []literal {
		return []literal{
			{m + data, safetensors.U8, []int64{rows, cols / 2}, s.take(rows * cols / 2)},
			{m + ".weight_scale", safetensors.F8_E4M3, []int64{rows, cols / 16}, s.e4m3s(rows * cols / 16)},
			{m + second, safetensors.F32, shape, last(s)},
		}
	}
}

func castVector(d safetensors.DType, n int, draw func(*stream) []byte) func(*stream, string) []literal {
	return func(s *stream, m string) []literal { return []literal{{m + ".weight", d, []int64{int64(n)}, draw(s)}} }
}

func comfyVector(s *stream, m string) []literal {
	return []literal{
		{m + ".weight", safetensors.U8, []int64{48, 24}, s.take(48 * 24)},
		{m + ".weight_scale", safetensors.F8_E4M3, []int64{128, 4}, s.e4m3s(512)},
		{m + ".weight_scale_2", safetensors.F32, nil, s.f32s(1)},
		{m + ".bias", safetensors.BF16, []int64{40}, make([]byte, 80)}, // its length is the number of rows that are no padding
		{m + ".comfy_quant", safetensors.U8, []int64{19}, []byte(`{"format": "nvfp4"}`)},
	}
}

func nf4Vector(s *stream, m string) []literal {
	m += ".weight"
	out := []literal{
		{m, safetensors.U8, []int64{1200, 1}, s.take(1200)},
		{m + ".absmax", safetensors.U8, []int64{38}, s.take(38)},
		{m + ".nested_quant_map", safetensors.F32, []int64{256}, s.u32s(256, 0x03FFFFFF, 0x3C000000)},
		{m + ".nested_absmax", safetensors.F32, []int64{1}, s.f32s(1)},
	}
	state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [24, 100], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": %v}`,
		float64(math.Float32frombits(0x3C8F5C29)))
	return append(out,
		literal{m + ".quant_map", safetensors.F32, []int64{16}, nf4Table()},
		literal{m + ".quant_state.bitsandbytes__nf4", safetensors.U8, []int64{int64(len(state))}, []byte(state)})
}

// nf4Table is bitsandbytes' table of NF4 values.
func nf4Table() []byte {
	var b []byte
	for _, u := range [16]uint32{0xBF800000, 0xBF3239B1, 0xBF066B30, 0xBECA32A0, 0xBE91A24D, 0xBE3D353F, 0xBDBA7871, 0, 0x3DA2FAFF, 0x3E24CAE3,
		0x3E7C04DD, 0x3EAD033A, 0x3EE1A4B8, 0x3F1007AB, 0x3F3913B3, 0x3F800000} {
		b = binary.LittleEndian.AppendUint32(b, u)
	}
	return b
}

func int8Vector(s *stream, m string) []literal {
	return []literal{
		{m + ".weight", safetensors.I8, []int64{16, 24}, s.take(16 * 24)},
		{m + ".SCB", safetensors.F32, []int64{16}, s.u32s(16, 0x00FFFFFF, 0x3F000000)},
		{m + ".weight_format", safetensors.U8, nil, []byte{0}},
	}
}

func awqVector(s *stream, m string) []literal {
	return []literal{
		{m + ".qweight", safetensors.I32, []int64{64, 4}, s.take(64 * 4 * 4)},
		{m + ".qzeros", safetensors.I32, []int64{2, 4}, s.take(2 * 4 * 4)},
		{m + ".scales", safetensors.F16, []int64{2, 32}, s.f16s(64)},
	}
}

func mxfp4Vector(s *stream, m string) []literal {
	return []literal{
		{m + ".weight_packed", safetensors.U8, []int64{48, 48}, s.take(48 * 48)},
		{m + ".weight_scale", safetensors.U8, []int64{48, 3}, s.e8m0s(48 * 3)},
	}
}

// quantizationConfig is a quantization_config with these members.
func quantizationConfig(members string) string {
	return ",\n  \"quantization_config\": {" + members + "}"
}

func blockConfig(m, n int) string {
	return quantizationConfig(fmt.Sprintf(`"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [%d, %d]`, m, n))
}

func ctFormat(format, weights string) string {
	return quantizationConfig(fmt.Sprintf(`"quant_method": "compressed-tensors", "format": %q, "ignore": ["lm_head"], `+
		`"config_groups": {"group_0": {"targets": ["Linear"], "weights": {%s}}}`, format, weights))
}

func ctInt(bits, group int, symmetric bool) string {
	strategy := fmt.Sprintf(`"strategy": "group", "group_size": %d`, group)
	if group < 0 {
		strategy = `"strategy": "channel", "group_size": null`
	}
	return ctFormat("pack-quantized", fmt.Sprintf(`"num_bits": %d, "type": "int", %s, "symmetric": %v`, bits, strategy, symmetric))
}

func gptqConfig(bits, group int, format string, permuted bool) string {
	return quantizationConfig(fmt.Sprintf(`"quant_method": "gptq", "bits": %d, "group_size": %d, "desc_act": %v, "sym": false, "checkpoint_format": %q`,
		bits, group, permuted, format))
}

func mlxConfig(bits, group int) string {
	return fmt.Sprintf(",\n  \"quantization\": {\"group_size\": %d, \"bits\": %d}", group, bits)
}

const perTensor = `"num_bits": 8, "type": "float", "strategy": "tensor", "symmetric": true`

func vectors() []vector {
	const f8, e5m2, e8m0, bf16, u8 = safetensors.F8_E4M3, safetensors.F8_E5M2, safetensors.F8_E8M0, safetensors.BF16, safetensors.U8
	return []vector{
		{name: "fp8blk-f32", sha256: "825e6d1236e6fe405950823db7be4690414d8141d9ccf3f429ab9d5986c8b257", config: blockConfig(128, 128),
			fill: fp8Vector(200, 300, 128, 128, f8, ".weight_scale_inv", f32)},
		{name: "fp8blk-bf16", sha256: "f4c36fc1c1a9dd9c8424597783c461d3b3c5acb396e18bf1c17e9a3336b4a899", config: blockConfig(128, 128),
			fill: fp8Vector(200, 300, 128, 128, f8, ".weight_scale_inv", bf16)},
		{name: "fp8blk-e8m0-32", sha256: "bc7dcafa021997ac82e5baee881e1326e6934f813f3afe7aea4c4d0a7e24085c", config: blockConfig(32, 32),
			fill: fp8Vector(70, 100, 32, 32, f8, ".weight_scale_inv", e8m0)},
		{name: "fp8channel-f32", sha256: "893ad8cacbc6e207d1648520aea804a9d01db2b9f0da9c88cb02ed8ee59791d8",
			config: ctFormat("float-quantized", `"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": true`),
			fill:   fp8Vector(64, 48, 1, 48, f8, ".weight_scale", f32)},
		{name: "fp8tensor-f32", sha256: "dead5a567818ca89acb7019237172f3e270797a2138ab0ed76db4290f04815e8",
			config: ctFormat("float-quantized", perTensor), fill: fp8Vector(16, 48, 16, 48, f8, ".weight_scale", f32)},
		{name: "f8e5m2-tensor-f32", sha256: "8d405656683b3d3fe4d2cf20822c3f33b3b3ba548beab80e45bc3deaa2bb2566",
			config: ctFormat("float-quantized", perTensor), fill: fp8Vector(16, 32, 16, 32, e5m2, ".weight_scale", f32)},
		{name: "mxfp4-pack", sha256: "d459949d40cd53625408d18b763003f936fa943e0e421a07f7af2ad9f01ba5a3",
			config: ctFormat("mxfp4-pack-quantized", `"num_bits": 4, "type": "float", "strategy": "group", "group_size": 32, "symmetric": true, "scale_dtype": "torch.uint8"`), fill: mxfp4Vector},
		{name: "gptoss-rows", stream: "gptoss", sha256: "5d78c72e06c08807b3793d0327117ae335b0cc52b5a6a9cfbb91311216412497",
			module: "block.0.mlp.mlp2_weight", tensor: "block.0.mlp.mlp2_weight", fill: gptOSSVector(".blocks", ".scales")},
		{name: "gptoss-hf", stream: "gptoss", sha256: "67e5a215104646a5d4c72b9994e990435c6470e70dcbc1e5581b2a75e94702ea", config: quantizationConfig(`"quant_method": "mxfp4"`),
			module: "model.layers.0.mlp.experts.down_proj", tensor: "model.layers.0.mlp.experts.down_proj", fill: gptOSSVector("_blocks", "_scales")},
		{name: "mxfp8", sha256: "67dd891b39287c6dbff7d25b2ab7458b501cef8a6c526e7c00ce71c485c25901",
			config: quantizationConfig(`"quant_method": "mxfp8", "weight_block_size": [1, 32]`), fill: fp8Vector(40, 96, 1, 32, f8, ".weight_scale_inv", u8)},
		{name: "nvfp4-modelopt", sha256: "fc4dcf8c00762e67cddc749f723b4734a06d77b8a86b88320f3e98b2ba765e60",
			config: quantizationConfig(`"quant_method": "modelopt", "quant_algo": "NVFP4"`),
			files:  []File{text("hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"NVFP4\", \"group_size\": 16}}\n")},
			fill:   nvfp4Vector(".weight", ".weight_scale_2", nil, func(s *stream) []byte { return s.f32s(1) })},
		{name: "nvfp4-ct", sha256: "2e6cd4f939c170dcd0fb9186fa0fece430353ce2619103e536d79437efde46e4",
			config: ctFormat("nvfp4-pack-quantized", `"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16, "symmetric": true`),
			fill:   nvfp4Vector(".weight_packed", ".weight_global_scale", []int64{1}, func(s *stream) []byte { return s.u32s(1, 0x01FFFFFF, 0x43000000) })},
		{name: "nvfp4-comfy", sha256: "d0aad18eb8b8aaeb4a995259b00386bf6155970c200f8774335cb0da61b3d40a", fill: comfyVector},
		{name: "ct-int4-sym", sha256: "0fa49165c1960da09a611f6afb177c56f6f9f8bf943bca28204a4cb23d6d5923", config: ctInt(4, 32, true), fill: ctVector(24, 96, 4, 32, false, false)},
		{name: "ct-int4-asym", sha256: "83e5c43b3bdadfd5cc13e04a62133ad673aa47e6cc2517f77373dbff4b26a01e", config: ctInt(4, 32, false), fill: ctVector(24, 96, 4, 32, true, false)},
		{name: "ct-int4-asym-gidx", sha256: "4f1dac6e1894bc2716a99d691ad19f44480068b034f0e53d0030865ef1f07cf2", config: ctInt(4, 32, false), fill: ctVector(24, 96, 4, 32, true, true)},
		{name: "ct-int8-channel", sha256: "5dba14f295d9219ce3301f15138f97bfb0cca69f8f03851347fba1065a7f0738", config: ctInt(8, -1, true), fill: ctVector(16, 40, 8, 40, false, false)},
		{name: "ct-int3-dense", sha256: "f752edf72309cba06854f356af1a638ed7012c8f53fdac5056ad68056e9b0eb8", config: ctInt(3, 32, true), fill: ctVector(8, 64, 3, 32, false, false)},
		{name: "ct-int6-dense", sha256: "c7343c4dea8070d5e97b95ba38b209ce5ef118e48a5037a789cf960e8c3513b4", config: ctInt(6, 32, true), fill: ctVector(8, 64, 6, 32, false, false)},
		{name: "gptq-v1-4b-perm", sha256: "e27554c7bf31d19e5883669521cf96bfa2cc537b981d6a4b7aaef2b1f73109f8", config: gptqConfig(4, 16, "gptq", true), fill: gptqVector(64, 32, 4, 16, true)},
		{name: "gptq-v2-4b", sha256: "94d2c60206bc65fd2f908cb9940a26949ed656771422d0d95495af7bbba097d5", config: gptqConfig(4, 16, "gptq_v2", false), fill: gptqVector(64, 32, 4, 16, false)},
		{name: "gptq-v1-8b", sha256: "07b0bedc4317586329a811fb729d5c6730c6fb84fbdaa99853c3a7057b4367da", config: gptqConfig(8, 32, "gptq", false), fill: gptqVector(64, 32, 8, 32, false)},
		{name: "gptq-v1-3b", sha256: "91c5905ce5a75ef34a602f04dea0f2686af27e9be0ef0cf30d370c30af993586", config: gptqConfig(3, 32, "gptq", false), fill: gptqVector(64, 32, 3, 32, false)},
		{name: "gptq-v1-2b", sha256: "dc3ae0c807f2ba482d83e1ef84f8da64a6866290b147438bede175d07516ff40", config: gptqConfig(2, 32, "gptq", false), fill: gptqVector(64, 32, 2, 32, false)},
		{name: "awq-gemm", sha256: "50a4316d38d1351e5aae59ed8d69fb128817442258aae70955315db2e907aad4",
			config: quantizationConfig(`"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": true`), fill: awqVector},
		{name: "nf4-nested", sha256: "8a4c793a6deae1b350cd45a4b79481fa229d4469566855824a7e964d6643a2b5",
			config: quantizationConfig(`"quant_method": "bitsandbytes", "load_in_4bit": true, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": true`), fill: nf4Vector},
		{name: "bnb-int8", sha256: "bf96d4dac6c265b44feac66764de7352dc3887fc7c695319249c5eecd8e68fed",
			config: quantizationConfig(`"quant_method": "bitsandbytes", "load_in_8bit": true`), fill: int8Vector},
		{name: "mlx-4b-g64", sha256: "2fda1364577016d9f5396629b28bd3da50ca9a8e5b3dc029f6576e84e792a8c7", config: mlxConfig(4, 64), fill: mlxVector(16, 128, 4, 64)},
		{name: "mlx-6b-g32", sha256: "0fc07b917d49a8b779b899ff1556c7bcb77156994f077810d1b17f0740d91519", config: mlxConfig(6, 32), fill: mlxVector(8, 64, 6, 32)},
		{name: "mlx-3b-g32", sha256: "ae11f09bd40a46bf6dbdf82e570b557c5a82dd40daf010dc7db7fa393110e3a2", config: mlxConfig(3, 32), fill: mlxVector(8, 64, 3, 32)},
		{name: "f16-cast", sha256: "a7fef1cb30fada001865656dd63d42a982bf35317d7c117fc4ec573302a9e0f1", fill: castVector(safetensors.F16, 2048, func(s *stream) []byte { return s.take(4096) })},
		{name: "f32-cast", sha256: "838d28885af102e99121e64a0aebb9150155c592e6ce10e49101ff3f597a9019", fill: castVector(f32, 2048, func(s *stream) []byte { return s.take(8192) })},
		{name: "f64-cast", sha256: "9050c2a537d746d4a9556d674660c8205b943f4c81085d77b905cf51b22e51d0", fill: castVector(safetensors.F64, 1024, f64s)},
	}
}

// f64s draws 1,024 numbers, each 38 00 00 ... plus the low 60 bits of eight bytes.
func f64s(s *stream) []byte {
	b := s.take(8 * 1024)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], 0x3800000000000000+binary.LittleEndian.Uint64(b[i:])&0x0FFFFFFFFFFFFFFF)
	}
	return b
}

// IsCast reports whether the release's tensors are plain ones that only the view bf16-all narrows.
func (r *Release) IsCast() bool { return strings.HasSuffix(r.Name, "-cast") }
