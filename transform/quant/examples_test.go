package quant

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"
)

// words32 is little-endian words from hex numbers.
func words32(t testing.TB, list string) []byte {
	t.Helper()
	var out []byte
	for _, w := range strings.Fields(list) {
		var v uint32
		if _, err := fmt.Sscanf(w, "%X", &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, le32(v)...)
	}
	return out
}

// halves is little-endian 16-bit words from hex numbers.
func halves(t testing.TB, list string) []byte {
	t.Helper()
	var out []byte
	for _, w := range strings.Fields(list) {
		var v uint16
		if _, err := fmt.Sscanf(w, "%X", &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, le16(v)...)
	}
	return out
}

func repeat(b []byte, n int) []byte {
	var out []byte
	for range n {
		out = append(out, b...)
	}
	return out
}

// example is a group with every BF16 value of its output. The values were computed independently, with binary32 operations rounded one by
// one.
type example struct {
	name   string
	files  map[string]file
	config Config
	want   string
}

func examples(t testing.TB) []example {
	h, w, q := func(s string) []byte { return hexBytes(t, s) }, func(s string) []byte { return words32(t, s) }, func(s string) []byte { return halves(t, s) }
	f8 := func(codes string, scale file) map[string]file {
		b := h(codes)
		return map[string]file{"weight": {"F8_E4M3", []int64{1, int64(len(b))}, b}, "weight_scale": scale}
	}
	one := []int64{1}
	f32s, bf16s := func(s string) file { return file{"F32", one, w(s)} }, func(s string) file { return file{"BF16", one, q(s)} }
	mx := func(codes, scale string) map[string]file {
		b := h(codes)
		b = append(b, make([]byte, 16-len(b)%16)...)
		return map[string]file{
			"weight_packed": {"U8", []int64{1, int64(len(b))}, b}, "weight_scale": {"U8", []int64{1, int64(len(b)) / 16}, repeat(h(scale), len(b)/16)},
		}
	}
	mx8 := func(codes, scale string) map[string]file {
		b := h(codes)
		b = append(b, make([]byte, 32-len(b))...)
		return map[string]file{"weight": {"F8_E4M3", []int64{1, 32}, b}, "weight_scale": {"U8", []int64{1, 1}, h(scale)}}
	}
	nv := func(codes, second, value string) map[string]file {
		b := append(h(codes), make([]byte, 5)...)
		return map[string]file{
			map[string]string{"weight_scale_2": "weight", "weight_global_scale": "weight_packed"}[second]: {"U8", []int64{1, 8}, b},
			"weight_scale": {"F8_E4M3", []int64{1, 1}, h("6E")}, second: {"F32", one, w(value)},
		}
	}
	nibble5 := func(second, value string) map[string]file {
		f := nv("050000", second, value)
		f["weight_scale"] = file{"F8_E4M3", []int64{1, 1}, h("39")}
		return f
	}
	ct := func(words, scale string, bits, in int64) map[string]file {
		b := h(words)
		return map[string]file{
			"weight_packed": {"I32", []int64{1, int64(len(b)) / 4}, b}, "weight_scale": {"BF16", []int64{1, 1}, q(scale)},
			"weight_shape": {"I64", []int64{2}, append(le64(1), le64(uint64(in))...)},
		}
	}
	asym := ct("10 32 54 76", "3C23", 4, 8)
	asym["weight_zero_point"] = file{"I32", []int64{1, 1}, w("3")}
	int3 := func(words string) map[string]file {
		f := ct("", "3F80", 3, 32)
		b := w(words)
		f["weight_packed"] = file{"I32", []int64{1, int64(len(b)) / 4}, b}
		return f
	}
	gptq := func(qweight, zeros string) map[string]file {
		return map[string]file{
			"qweight": {"I32", []int64{1, 8}, repeat(w(qweight), 8)}, "qzeros": {"I32", []int64{1, 1}, w(zeros)},
			"scales": {"F16", []int64{1, 8}, repeat(q("2418"), 8)},
		}
	}
	awq := func(zeros string) map[string]file {
		return map[string]file{
			"qweight": {"I32", []int64{1, 1}, w("76543210")}, "qzeros": {"I32", []int64{1, 1}, w(zeros)}, "scales": {"F16", []int64{1, 8}, repeat(q("2418"), 8)},
		}
	}
	bnb := func(kind, codes string) map[string]file {
		b := h(codes)
		state := fmt.Sprintf(`{"quant_type": %q, "blocksize": 64, "shape": [1, %d]}`, kind, 2*len(b))
		return map[string]file{
			"weight": {"U8", []int64{int64(len(b)), 1}, b}, bnbAbsmax: {"F32", one, w("3D4CCCCD")},
			"weight.quant_state.bitsandbytes__" + kind: {"U8", []int64{int64(len(state))}, []byte(state)},
		}
	}
	nested := bnb("nf4", "0F")
	state := `{"quant_type": "nf4", "blocksize": 64, "shape": [1, 2], "nested_blocksize": 256, "nested_offset": 0.05000000074505806}`
	nested[bnbStateNF4] = file{"U8", []int64{int64(len(state))}, []byte(state)}
	nested[bnbAbsmax], nested[bnbNestedAbsmax] = file{"U8", one, []byte{7}}, file{"F32", one, w("3C23D70A")}
	nested[bnbNestedMap] = file{"F32", []int64{256}, repeat(w("3F4CCCCD"), 256)}
	gptConfig := Config{Method: "gptq"}
	mlx := map[string]file{
		"weight": {"U32", []int64{1, 4}, repeat(w("76543210"), 4)}, "scales": {"BF16", []int64{1, 1}, q("3C23")}, "biases": {"BF16", []int64{1, 1}, q("BD9C")},
	}
	mlx6 := map[string]file{
		"weight": {"U32", []int64{1, 6}, repeat(w("3199B405 3A1D487F A9F509FB"), 2)}, "scales": {"BF16", []int64{1, 1}, q("3F80")}, "biases": {"BF16", []int64{1, 1}, q("0000")},
	}
	hqq := map[string]file{
		"W_q": {"U8", []int64{2, 4}, h("1F2E3D4C 5B6A7988")}, "scale": {"F16", []int64{4, 1}, q("2418 2800 3000 2C00")}, "zero": {"F16", []int64{4, 1}, q("4700 4780 4800 4600")},
		"nbits": {"I32", nil, w("4")}, "group_size": {"I32", nil, w("4")}, "axis": {"I32", nil, w("1")}, "packing": {"U8", []int64{7}, []byte("4bit_u8")},
		"shape": {"I64", []int64{2}, append(le64(4), le64(4)...)},
	}
	comfy := map[string]file{
		"weight": {"U8", []int64{16, 8}, repeat(h("297FD50000000000"), 16)}, "weight_scale": {"F8_E4M3", []int64{128, 4}, repeat(h("6E"), 512)},
		"weight_scale_2": {"F32", nil, w("3A2F8AE3")}, "comfy_quant": {"U8", []int64{19}, []byte(`{"format": "nvfp4"}`)},
	}
	bitnet := map[string]file{"weight": {"U8", []int64{1, 1}, h("A1")}, "weight_scale": bf16s("3F9A")}
	return []example{
		{name: "5 block, partial", config: Config{Block: [2]int{2, 2}}, want: "3A83 3EE5 3DCD 3603 BB03 BE9A", files: map[string]file{
			"weight": {"F8_E4M3", []int64{2, 3}, h("387EB8 01C044")}, "weight_scale_inv": {"F32", []int64{1, 2}, w("3A83126F BDCCCCCD")}}},
		{name: "6 BF16 scale", files: f8("38 39 3A 3F 7E", bf16s("3951")), want: "3951 396B 3983 39C4 3DB7"},
		{name: "7 E8M0 scale", files: f8("38 7E 01 7F", file{"F8_E8M0", one, h("79")}), want: "3C80 40E0 3800 7FC0"},
		{name: "8 double rounding", files: f8("39", f32s("3A515555")), want: "3A6C"},
		{name: "8 double rounding, tie", files: f8("3A", f32s("3A4C6666")), want: "3A80"},
		{name: "9 scale is not cast first", files: f8("39", f32s("3DCCCCCD")), want: "3DE6"},
		{name: "10 per channel", want: "3C24 BC24 4360 3A80", files: map[string]file{
			"weight": {"F8_E4M3", []int64{2, 2}, h("38B8 7E01")}, "weight_scale": {"F32", []int64{2, 1}, w("3C23D70A 3F000000")}}},
		{name: "11 MXFP4", files: mx("29F087", "79"), want: "BC00 3C80 0000 BDC0 3DC0 8000"},
		{name: "12 MXFP4, all codes", files: mx("1032547698BADCFE", "7F"), want: "0000 3F00 3F80 3FC0 4000 4040 4080 40C0 8000 BF00 BF80 BFC0 C000 C040 C080 C0C0"},
		{name: "13 MXFP4, smallest scale", files: mx("7181", "00"), want: "0020 0140 0020 8000"},
		{name: "13 MXFP4, largest scale", files: mx("F210", "FE"), want: "7F00 FF80 0000 7E80"},
		{name: "13 MXFP4, scale 255", files: mx("10", "FF"), want: "7FC0 7FC0"},
		{name: "14 MXFP8", files: mx8("387EB801", "77"), want: "3B80 3FE0 BB80 3700"},
		{name: "14 MXFP8, smallest scale", files: mx8("7E3801", "00"), want: "0460 0040 0000"},
		{name: "15 NVFP4, ModelOpt", files: nv("297FD5", "weight_scale_2", "3A2F8AE3"), want: "BD1A 3D9A BEE6 3EE6 3E66 BE66"},
		{name: "15 NVFP4, compressed-tensors", files: nv("297FD5", "weight_global_scale", "44BAAAC2"), want: "BD1A 3D9A BEE6 3EE6 3E66 BE66"},
		{name: "16 factor", files: nibble5("weight_scale_2", "394425EC"), want: "3A26"},
		{name: "16 divisor", files: nibble5("weight_global_scale", "45A70EB3"), want: "3A25"},
		{name: "17 NVFP4, Comfy", files: comfy, want: "3D9A BD1A 3EE6 BEE6 BE66 3E66"},
		{name: "19 int4", config: ctConfig(4), files: ct("10325476", "3C23", 4, 8), want: "BDA3 BD8F BD74 BD4C BD23 BCF4 BCA3 BC23"},
		{name: "20 int4", config: ctConfig(4), files: ct("EFCDAB89", "BC80", 4, 8), want: "BDE0 BDC0 BDA0 BD80 BD40 BD00 BC80 8000"},
		{name: "21 int4, zero point", config: ctConfig(4), files: asym, want: "BCF4 BCA3 BC23 0000 3C23 3CA3 3CF4 3D23"},
		{name: "22 int8", files: ct("007F80FF", "3C23", 8, 4), config: ctConfig(8), want: "BFA3 BC23 0000 3FA2"},
		{name: "23 int3, dense", files: int3("43C67543 7543C675 C67543C6"), config: ctConfig(3), want: int3Values()},
		{name: "23 int3, padded", files: int3("03C67543 150F19D5 27543C67 00000031"), config: ctConfig(3), want: int3Values()},
		{name: "24 int-quantized", want: "BFA4 BFA3 BC24 0000 3FA3", files: map[string]file{"weight": {"I8", []int64{1, 5}, h("8081FF007F")}, "weight_scale": {"F32", []int64{1, 1}, w("3C23D70A")}}},
		{name: "25 GPTQ", files: gptq("76543210", "77777777"), config: gptConfig, want: strings.Repeat("BE03 BDE5 BDC4 BDA4 BD83 BD44 BD03 BC83 ", 8)},
		{name: "25 GPTQ v2", files: gptq("76543210", "88888888"), config: gptqV2, want: strings.Repeat("BE03 BDE5 BDC4 BDA4 BD83 BD44 BD03 BC83 ", 8)},
		{name: "27 AWQ", files: awq("88888888"), want: "BE03 BD83 BDE5 BD44 BDC4 BD03 BDA4 BC83"},
		{name: "28 AWQ", files: awq("01234567"), want: "BDE5 3C83 BDA4 3D44 BD44 3DA4 BC83 3DE5"},
		{name: "29 NF4", files: bnb("nf4", "0F7E81"), want: "BD4D 3D4D 0000 3D14 3B82 BD0F"},
		{name: "30 FP4", files: bnb("fp4", "132B9F"), want: "3989 3D4D 3D09 BD4D B989 BC4D"},
		{name: "31 NF4, nested", files: nested, want: "BD6E 3D6E"},
		{name: "32 LLM.int8", want: "BF8D BC0E 3F8D 3C0E", files: map[string]file{"weight": {"I8", []int64{1, 4}, h("81FF7F01")}, "SCB": {"F32", one, w("3F8CCCCD")}}},
		{name: "33 MLX", files: mlx, config: Config{Bits: 4, GroupSize: 32}, want: strings.Repeat("BD9C BD88 BD66 BD3E BD15 BCD8 BC87 BBD6 ", 4)},
		{name: "34 MLX, 6 bits", files: mlx6, config: Config{Bits: 6, GroupSize: 32}, want: strings.Repeat(codesBF16(func(i int) int { return (11*i + 5) % 64 }, 16), 2)},
		{name: "35 HQQ", files: hqq, want: "BDC4 BDA4 BD83 BD44 BDA0 BD40 BC80 3C80 3F60 3F40 3F20 3F00 3EA0 3E80 3E40 3E00"},
		{name: "39 BitNet", files: bitnet, config: Config{Method: "bitnet"}, want: "0000 BF55 3F55 3F55"},
	}
}

// codesBF16 is small integers as BF16.
func codesBF16(code func(i int) int, n int) string {
	var out []byte
	for i := range n {
		out = append(out, le16(uint16(math.Float32bits(float32(code(i)))>>16))...)
	}
	return bf16Hex(out) + " "
}

func int3Values() string { return codesBF16(func(i int) int { return (5*i+3)%8 - 4 }, 32) }

func TestExamples(t *testing.T) {
	for _, x := range examples(t) {
		t.Run(x.name, func(t *testing.T) {
			m, in := recognise(t, x.files, x.config, nil)
			got := bf16Hex(whole(t, m.Codec, in))
			if want := strings.TrimSpace(x.want); !strings.HasPrefix(got, want) {
				t.Errorf("got %s\nwant %s", got, want)
			}
		})
	}
}

func TestCastExamples(t *testing.T) {
	for _, x := range []struct{ name, dtype, in, want string }{
		{"1 E4M3", "F8_E4M3", "387EFE01 80007FFF 0888", "3F80 43E0 C3E0 3B00 8000 0000 7FC0 7FC0 3C80 BC80"},
		{"2 E5M2", "F8_E5M2", "3C7B7CFC 7D018004", "3F80 4760 7F80 FF80 7FC0 3780 8000 3880"},
		{"3 E4M3FNUZ", "F8_E4M3FNUZ", "407F8001FF", "3F80 4370 7FC0 3A80 C370"},
		{"3 E5M2FNUZ", "F8_E5M2FNUZ", "407F8001FF", "3F80 4760 7FC0 3700 C760"},
		{"4 E8M0", "F8_E8M0", "00017FFEFF", "0040 0080 3F80 7F00 7FC0"},
		{"36 F16", "F16", "003C013C FF7B0100 00FC007E", "3F80 3F80 4780 3380 FF80 7FC0"},
		{"37 F32", "F32", "0080803F 0080813F 0180803F FFFF7F7F 01000000 00800000 0000C0FF", "3F80 3F82 3F81 7F80 0000 0000 7FC0"},
		{"38 F64", "F64", "010000000010F03F", "3F80"},
		{"F4", "F4", "10325476", "0000 3F00 3F80 3FC0 4000 4040 4080 40C0"},
	} {
		t.Run(x.name, func(t *testing.T) {
			in := hexBytes(t, x.in)
			n := len(strings.Fields(x.want))
			c := Cast(x.dtype, []int64{int64(n)})
			if got := bf16Hex(whole(t, c, [][]byte{in})); got != x.want {
				t.Errorf("got %s\nwant %s", got, x.want)
			}
		})
	}
}

// TestElementTables compares the tables of all codes with hashes made from an independent implementation of the definitions.
func TestElementTables(t *testing.T) {
	for _, x := range []struct {
		dtype string
		codes int
		hash  string
	}{
		{"F8_E4M3", 256, "15e7e4f7f07a1a04e832bfcea81d297a794c9e60824e4f72ab5537c9050f26c7"},
		{"F8_E5M2", 256, "d6e0c4cfe40a633142ae7efca8a782ba24232c4ef2197ddd57df87ea1894ef90"},
		{"F8_E4M3FNUZ", 256, "6e00d3dd9a1f38fb71a060f2ae867a25ef7c2cafa093638e84cbce4509a79c92"},
		{"F8_E5M2FNUZ", 256, "4364d98bdc8bc8cfc173858f2380f040121c4beb1433f14dae83cd145920dae9"},
		{"F8_E8M0", 256, "a14d04d51cf9dd86703cd173733b7cde9a098ebdd5071187211bdda4984771e3"},
		{"F4", 16, "ee8ffd0ce729e1302b807979bd60d0bada92954eb4555c11e771f5dfa62ca5d6"},
		{"F6_E2M3", 64, "d4c39e99561960e435a15fc62b8af818608a2ac890d8eb76f2f58c5198ee5a2a"},
		{"F6_E3M2", 64, "227a8a9e7543965185e10cd17c34bf89b5ec4e5edb55b3674f054d854ac1e96c"},
	} {
		bits := map[int]int{256: 8, 16: 4, 64: 6}[x.codes]
		in := make([]byte, x.codes*bits/8+1)
		for c := range x.codes {
			v := uint16(c) << (c * bits % 8)
			at := in[c*bits/8:]
			at[0] |= byte(v)
			if len(at) > 1 {
				at[1] |= byte(v >> 8)
			}
		}
		c := Cast(x.dtype, []int64{int64(x.codes)})
		if got := hash(whole(t, c, [][]byte{in[:len(in)-1]})); got != x.hash {
			t.Errorf("%s: %s, want %s", x.dtype, got, x.hash)
		}
	}
}

// TestCastVectors are the bulk vectors of plain dtypes.
func TestCastVectors(t *testing.T) {
	draw := map[string]func(*stream) []byte{
		"F16": func(s *stream) []byte { return le16(s.u16()) },
		"F32": func(s *stream) []byte { return le32(s.u32()) },
		"F64": func(s *stream) []byte { return le64(0x3800000000000000 + s.u64()&0x0FFFFFFFFFFFFFFF) },
	}
	for _, x := range []struct {
		name, dtype string
		n           int
		hash        string
	}{
		{"f16-cast", "F16", 2048, "a7fef1cb30fada001865656dd63d42a982bf35317d7c117fc4ec573302a9e0f1"},
		{"f32-cast", "F32", 2048, "838d28885af102e99121e64a0aebb9150155c592e6ce10e49101ff3f597a9019"},
		{"f64-cast", "F64", 1024, "9050c2a537d746d4a9556d674660c8205b943f4c81085d77b905cf51b22e51d0"},
	} {
		s := &stream{name: x.name}
		in := each(x.n, func() []byte { return draw[x.dtype](s) })
		c := Cast(x.dtype, []int64{int64(x.n)})
		if got := hash(whole(t, c, [][]byte{in})); got != x.hash {
			t.Errorf("%s: %s, want %s", x.name, got, x.hash)
		}
		checkWindows(t, c, [][]byte{in})
	}
}

// TestSwizzle checks the place of scales in 128x4 tiles (example 18).
func TestSwizzle(t *testing.T) {
	for _, x := range [][3]int{{0, 0, 0}, {0, 1, 1}, {1, 0, 16}, {32, 0, 4}, {127, 3, 511}, {0, 4, 512}, {128, 0, 1024}, {200, 7, 1675}} {
		tiles := tiledScales(1, 256, 8)
		at := int(tiles.first(int64(x[0]), 256)*tiles.rowBytes) + fp4{swizzled: true}.scaleIndex(&strip{row: int64(x[0])}, 0, x[1])
		if at != x[2] {
			t.Errorf("scale (%d, %d) at %d, want %d", x[0], x[1], at, x[2])
		}
	}
}

// TestGPTQZeros is example 26: adding to whole words undoes what the writers did, also where a zero point is 0.
func TestGPTQZeros(t *testing.T) {
	k := gptq{bits: 4, minusOne: true}
	v := colView{dense: binary.LittleEndian.AppendUint32(nil, 0x7777773F), stride: 4}
	for n, want := range []int{0, 5, 8, 8, 8, 8, 8, 8} {
		if got := k.zero(&v, 0, int64(n)); got != want {
			t.Errorf("column %d: zero %d, want %d", n, got, want)
		}
	}
}
