package quant

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// bulk is one vector: a group filled from a stream, and the SHA-256 of its BF16 output. Hashes, parameters and draw order were made
// independently of this package, in plain Python and checked with NumPy.
type bulk struct {
	name      string
	format    string
	make      func(s *stream) (files map[string]file, order []string)
	config    Config
	metadata  map[string]string
	inputHash string // first 16 digits over the tensors in order
	hash      string
	stream    string // if not name
	rows      bool   // the vector is of Match.Rows
}

func fp8Bulk(rows, cols, bm, bn int64, dtype, side, scaleType string) func(*stream) (map[string]file, []string) {
	return func(s *stream) (map[string]file, []string) {
		w := s.take(int(rows * cols))
		shape := []int64{ceilDiv(rows, bm), ceilDiv(cols, bn)}
		n := int(shape[0] * shape[1])
		draw := map[string]func(int) []byte{"F32": s.f32s, "BF16": s.bf16s, "F8_E8M0": s.e8m0s, "U8": s.e8m0s}[scaleType]
		return map[string]file{
			"weight": {dtype, []int64{rows, cols}, w},
			side:     {scaleType, shape, draw(n)},
		}, []string{"weight", side}
	}
}

func bulks() []bulk {
	return []bulk{
		{name: "fp8blk-f32", format: "fp8", make: fp8Bulk(200, 300, 128, 128, "F8_E4M3", "weight_scale_inv", "F32"), inputHash: "73d846f29a01b031",
			hash: "825e6d1236e6fe405950823db7be4690414d8141d9ccf3f429ab9d5986c8b257"},
		{name: "fp8blk-bf16", format: "fp8", make: fp8Bulk(200, 300, 128, 128, "F8_E4M3", "weight_scale_inv", "BF16"), inputHash: "a4db6f4ff1b66bf6",
			hash: "f4c36fc1c1a9dd9c8424597783c461d3b3c5acb396e18bf1c17e9a3336b4a899"},
		{name: "fp8blk-e8m0-32", format: "fp8", make: fp8Bulk(70, 100, 32, 32, "F8_E4M3", "scale", "F8_E8M0"), inputHash: "0dcc16b2f1ef7a2a",
			hash: "bc7dcafa021997ac82e5baee881e1326e6934f813f3afe7aea4c4d0a7e24085c"},
		{name: "fp8channel-f32", format: "fp8", make: fp8Bulk(64, 48, 1, 48, "F8_E4M3", "weight_scale", "F32"), inputHash: "f42934c3b5b9a14c",
			hash: "893ad8cacbc6e207d1648520aea804a9d01db2b9f0da9c88cb02ed8ee59791d8"},
		{name: "fp8tensor-f32", format: "fp8", make: fp8Bulk(16, 48, 16, 48, "F8_E4M3", "weight_scale", "F32"), inputHash: "a9665d95217c3986",
			hash: "dead5a567818ca89acb7019237172f3e270797a2138ab0ed76db4290f04815e8"},
		{name: "f8e5m2-tensor-f32", format: "fp8", make: fp8Bulk(16, 32, 16, 32, "F8_E5M2", "weight_scale", "F32"), inputHash: "f852ad4d52c63399",
			hash: "8d405656683b3d3fe4d2cf20822c3f33b3b3ba548beab80e45bc3deaa2bb2566"},
		{name: "mxfp8", format: "fp8", make: fp8Bulk(40, 96, 1, 32, "F8_E4M3", "weight_scale_inv", "U8"), inputHash: "7aef8e8f6047367c",
			hash: "67dd891b39287c6dbff7d25b2ab7458b501cef8a6c526e7c00ce71c485c25901"},
		{name: "mxfp4-pack", format: "mxfp4", inputHash: "2097eb35e51ea74e", hash: "d459949d40cd53625408d18b763003f936fa943e0e421a07f7af2ad9f01ba5a3",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight_packed": {"U8", []int64{48, 48}, s.take(48 * 48)},
					"weight_scale":  {"U8", []int64{48, 3}, s.e8m0s(48 * 3)},
				}, []string{"weight_packed", "weight_scale"}
			}},
		{name: "gptoss-rows[E,out,in]", stream: "gptoss", format: "gpt-oss", rows: true, make: gptOSSBulk, inputHash: "a42fb663e0e300f7",
			hash: "5d78c72e06c08807b3793d0327117ae335b0cc52b5a6a9cfbb91311216412497"},
		{name: "gptoss-hf[E,in,out]", stream: "gptoss", format: "gpt-oss", make: gptOSSBulk, inputHash: "a42fb663e0e300f7",
			hash: "67e5a215104646a5d4c72b9994e990435c6470e70dcbc1e5581b2a75e94702ea"},
		{name: "nvfp4-modelopt", format: "nvfp4", inputHash: "f25217dda66b1500", hash: "fc4dcf8c00762e67cddc749f723b4734a06d77b8a86b88320f3e98b2ba765e60",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight": {"U8", []int64{32, 32}, s.take(32 * 32)}, "weight_scale": {"F8_E4M3", []int64{32, 4}, s.e4m3s(32 * 4)},
					"weight_scale_2": {"F32", nil, s.f32s(1)},
				}, []string{"weight", "weight_scale", "weight_scale_2"}
			}},
		{name: "nvfp4-ct", format: "nvfp4", inputHash: "1eef0c1dbfa3a89a", hash: "2e6cd4f939c170dcd0fb9186fa0fece430353ce2619103e536d79437efde46e4",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight_packed": {"U8", []int64{32, 32}, s.take(32 * 32)}, "weight_scale": {"F8_E4M3", []int64{32, 4}, s.e4m3s(32 * 4)},
					"weight_global_scale": {"F32", []int64{1}, le32(0x43000000 + s.u32()&0x01FFFFFF)},
				}, []string{"weight_packed", "weight_scale", "weight_global_scale"}
			}},
		{name: "ct-int4-sym", format: "pack-quantized", make: ctBulk(24, 96, 4, 32, false, false), inputHash: "11ac8a8c4c2c9889",
			hash: "0fa49165c1960da09a611f6afb177c56f6f9f8bf943bca28204a4cb23d6d5923"},
		{name: "ct-int4-asym", format: "pack-quantized", make: ctBulk(24, 96, 4, 32, true, false), inputHash: "1ad54af36ed67dd8",
			hash: "83e5c43b3bdadfd5cc13e04a62133ad673aa47e6cc2517f77373dbff4b26a01e"},
		{name: "ct-int4-asym-gidx", format: "pack-quantized", make: ctBulk(24, 96, 4, 32, true, true), inputHash: "95a45fc02c6de8e7",
			hash: "4f1dac6e1894bc2716a99d691ad19f44480068b034f0e53d0030865ef1f07cf2"},
		{name: "ct-int8-channel", format: "pack-quantized", make: ctBulk(16, 40, 8, 40, false, false), config: ctConfig(8), inputHash: "396454509f593437",
			hash: "5dba14f295d9219ce3301f15138f97bfb0cca69f8f03851347fba1065a7f0738"},
		{name: "ct-int3-dense", format: "pack-quantized", make: ctBulk(8, 64, 3, 32, false, false), inputHash: "504a7aac19398c0e",
			hash: "f752edf72309cba06854f356af1a638ed7012c8f53fdac5056ad68056e9b0eb8"},
		{name: "ct-int6-dense", format: "pack-quantized", make: ctBulk(8, 64, 6, 32, false, false), inputHash: "482e4e11178737a7",
			hash: "c7343c4dea8070d5e97b95ba38b209ce5ef118e48a5037a789cf960e8c3513b4"},
		{name: "mlx-4b-g64", format: "mlx", make: mlxBulk(16, 128, 4, 64), config: Config{Bits: 4, GroupSize: 64}, inputHash: "f7a39ae63d5e11ec",
			hash: "2fda1364577016d9f5396629b28bd3da50ca9a8e5b3dc029f6576e84e792a8c7"},
		{name: "mlx-6b-g32", format: "mlx", make: mlxBulk(8, 64, 6, 32), config: Config{Bits: 6, GroupSize: 32}, inputHash: "da94b59bf0e4b724",
			hash: "0fc07b917d49a8b779b899ff1556c7bcb77156994f077810d1b17f0740d91519"},
		{name: "mlx-3b-g32", format: "mlx", make: mlxBulk(8, 64, 3, 32), config: Config{Bits: 3, GroupSize: 32}, inputHash: "9184f15ea4c22650",
			hash: "ae11f09bd40a46bf6dbdf82e570b557c5a82dd40daf010dc7db7fa393110e3a2"},
		{name: "nvfp4-comfy", format: "comfy", inputHash: "b31aae8c961d2a29", hash: "d0aad18eb8b8aaeb4a995259b00386bf6155970c200f8774335cb0da61b3d40a",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight": {"U8", []int64{48, 24}, s.take(48 * 24)}, "weight_scale": {"F8_E4M3", []int64{128, 4}, s.e4m3s(512)},
					"weight_scale_2": {"F32", nil, s.f32s(1)}, "bias": {"BF16", []int64{40}, make([]byte, 80)},
					"comfy_quant": {"U8", []int64{19}, []byte(`{"format": "nvfp4"}`)},
				}, []string{"weight", "weight_scale", "weight_scale_2"}
			}},
		{name: "gptq-v1-4b-perm", format: "gptq", make: gptqBulk(64, 32, 4, 16, true), config: Config{Method: "gptq"}, inputHash: "8b65fbbe8b3dbeba",
			hash: "e27554c7bf31d19e5883669521cf96bfa2cc537b981d6a4b7aaef2b1f73109f8"},
		{name: "gptq-v2-4b", format: "gptq", make: gptqBulk(64, 32, 4, 16, false), config: gptqV2, inputHash: "6d00600c784434e8",
			hash: "94d2c60206bc65fd2f908cb9940a26949ed656771422d0d95495af7bbba097d5"},
		{name: "gptq-v1-8b", format: "gptq", make: gptqBulk(64, 32, 8, 32, false), config: Config{Method: "gptq"}, inputHash: "52ff3271f2a1f570",
			hash: "07b0bedc4317586329a811fb729d5c6730c6fb84fbdaa99853c3a7057b4367da"},
		{name: "gptq-v1-3b", format: "gptq", make: gptqBulk(64, 32, 3, 32, false), config: Config{Method: "gptq"}, inputHash: "741ed7e5e2ef2ecf",
			hash: "91c5905ce5a75ef34a602f04dea0f2686af27e9be0ef0cf30d370c30af993586"},
		{name: "gptq-v1-2b", format: "gptq", make: gptqBulk(64, 32, 2, 32, false), config: Config{Method: "gptq"}, inputHash: "db70b331ddaf85eb",
			hash: "dc3ae0c807f2ba482d83e1ef84f8da64a6866290b147438bede175d07516ff40"},
		{name: "awq-gemm", format: "awq", inputHash: "bf061f5675529690", hash: "50a4316d38d1351e5aae59ed8d69fb128817442258aae70955315db2e907aad4",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"qweight": {"I32", []int64{64, 4}, s.words(256)}, "qzeros": {"I32", []int64{2, 4}, s.words(8)}, "scales": {"F16", []int64{2, 32}, s.f16s(64)},
				}, []string{"qweight", "qzeros", "scales"}
			}},
		{name: "nf4-nested", format: "bitsandbytes-4bit", make: nf4Bulk, inputHash: "84e2374439d423b6",
			hash: "8a4c793a6deae1b350cd45a4b79481fa229d4469566855824a7e964d6643a2b5"},
		{name: "bnb-int8", format: "bitsandbytes-int8", inputHash: "8fec58393e100da6", hash: "bf96d4dac6c265b44feac66764de7352dc3887fc7c695319249c5eecd8e68fed",
			make: func(s *stream) (map[string]file, []string) {
				return map[string]file{
					"weight": {"I8", []int64{16, 24}, s.take(16 * 24)}, "weight_format": {"U8", nil, []byte{0}},
					"SCB": {"F32", []int64{16}, each(16, func() []byte { return le32(0x3F000000 + s.u32()&0x00FFFFFF) })},
				}, []string{"weight", "SCB"}
			}},
	}
}

var gptqV2 = Config{Method: "gptq", Raw: []byte(`{"quant_method":"gptq","checkpoint_format":"gptq_v2"}`)}

func gptqBulk(in, out, bits, group int, permuted bool) func(*stream) (map[string]file, []string) {
	return func(s *stream) (map[string]file, []string) {
		groups := in / group
		index := gIndex(in, group)
		if !permuted {
			index = nil
			for k := range in {
				index = append(index, le32(uint32(k/group))...)
			}
		}
		return map[string]file{
			"qweight": {"I32", []int64{int64(in * bits / 32), int64(out)}, s.words(in * bits / 32 * out)},
			"qzeros":  {"I32", []int64{int64(groups), int64(out * bits / 32)}, s.words(groups * out * bits / 32)},
			"scales":  {"F16", []int64{int64(groups), int64(out)}, s.f16s(groups * out)},
			"g_idx":   {"I32", []int64{int64(in)}, index},
		}, []string{"qweight", "qzeros", "scales", "g_idx"}
	}
}

func nf4Bulk(s *stream) (map[string]file, []string) {
	const blocks = 24*100/64 + 1
	files := map[string]file{
		"weight":        {"U8", []int64{1200, 1}, s.take(1200)},
		bnbAbsmax:       {"U8", []int64{blocks}, s.take(blocks)},
		bnbNestedMap:    {"F32", []int64{256}, each(256, func() []byte { return le32(0x3C000000 + s.u32()&0x03FFFFFF) })},
		bnbNestedAbsmax: {"F32", []int64{1}, s.f32s(1)},
		"offset":        {"F32", []int64{1}, le32(0x3C8F5C29)}, // only to check the input's hash
	}
	state := fmt.Sprintf(`{"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [24, 100], "nested_blocksize": 256, "nested_dtype": "float32", "nested_offset": %v}`,
		float64(math.Float32frombits(0x3C8F5C29)))
	files[bnbStateNF4] = file{"U8", []int64{int64(len(state))}, []byte(state)}
	return files, []string{"weight", bnbAbsmax, bnbNestedMap, bnbNestedAbsmax, "offset"}
}

// ctConfig declares one config group of a bit width.
func ctConfig(bits int) Config {
	return Config{Method: "compressed-tensors", Raw: fmt.Appendf(nil, `{"config_groups":{"group_0":{"weights":{"num_bits":%d}}}}`, bits)}
}

func gptOSSBulk(s *stream) (map[string]file, []string) {
	return map[string]file{
		"_blocks": {"U8", []int64{2, 32, 3, 16}, s.take(2 * 32 * 3 * 16)}, "_scales": {"U8", []int64{2, 32, 3}, s.e8m0s(2 * 32 * 3)},
	}, []string{"_blocks", "_scales"}
}

// gIndex is the permuted group index of the vectors.
func gIndex(k, group int) []byte {
	var out []byte
	for i := range k {
		out = append(out, le32(uint32((i*5)%k/group))...)
	}
	return out
}

func (s *stream) words(n int) []byte { return each(n, func() []byte { return le32(s.u32()) }) }

func ctBulk(rows, cols, bits, group int, asym, index bool) func(*stream) (map[string]file, []string) {
	return func(s *stream) (map[string]file, []string) {
		words, groups := (cols*bits+31)/32, cols/group
		files := map[string]file{"weight_packed": {"I32", []int64{int64(rows), int64(words)}, s.words(rows * words)}}
		files["weight_scale"] = file{"BF16", []int64{int64(rows), int64(groups)}, s.bf16s(rows * groups)}
		files["weight_shape"] = file{"I64", []int64{2}, append(le64(uint64(rows)), le64(uint64(cols))...)}
		order := []string{"weight_packed", "weight_scale"}
		if asym {
			zw := (rows*bits + 31) / 32
			files["weight_zero_point"] = file{"I32", []int64{int64(zw), int64(groups)}, s.words(zw * groups)}
			order = append(order, "weight_zero_point")
		}
		if index {
			files["weight_g_idx"] = file{"I32", []int64{int64(cols)}, gIndex(cols, group)}
			order = append(order, "weight_g_idx")
		}
		return files, order
	}
}

func mlxBulk(rows, cols, bits, group int) func(*stream) (map[string]file, []string) {
	return func(s *stream) (map[string]file, []string) {
		words, groups := cols*bits/32, cols/group
		shape := []int64{int64(rows), int64(groups)}
		files := map[string]file{
			"weight": {"U32", []int64{int64(rows), int64(words)}, s.words(rows * words)},
			"scales": {"BF16", shape, s.bf16s(rows * groups)},
			"biases": {"BF16", shape, each(rows*groups, func() []byte { return le16(0x8000 | (0x3900 + s.u16()&0x03FF)) })},
		}
		return files, []string{"weight", "scales", "biases"}
	}
}

func TestBulkVectors(t *testing.T) {
	for _, b := range bulks() {
		t.Run(b.name, func(t *testing.T) {
			name := b.name
			if b.stream != "" {
				name = b.stream
			}
			files, order := b.make(&stream{name: name})
			var all []byte
			for _, s := range order {
				all = append(all, files[s].data...)
			}
			if got := hash(all); !strings.HasPrefix(got, b.inputHash) {
				t.Fatalf("the input is another one: %s", got)
			}
			m, in := recognise(t, files, b.config, b.metadata)
			if m.Format != b.format {
				t.Errorf("format %q, want %q", m.Format, b.format)
			}
			codec := m.Codec
			if b.rows {
				codec = m.Rows
			}
			if got := hash(whole(t, codec, in)); got != b.hash {
				t.Errorf("output hash %s, want %s", got, b.hash)
			}
			checkWindows(t, codec, in)
		})
	}
}
