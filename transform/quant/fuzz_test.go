package quant

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"weightfs/fs/plan"
)

// fuzzGroup reads a group from bytes: for each tensor a suffix, a dtype and a shape; sizes are drawn from interesting ones.
func fuzzGroup(b []byte, config []byte, fact []byte) Group {
	suffixes := Suffixes()
	dtypes := []string{"U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0", "F32", "BF16", "F16", "I32", "U32", "I64", "F4", "BOOL", "new"}
	sizes := []int64{0, 1, 2, 3, 4, 8, 15, 16, 24, 32, 48, 64, 96, 100, 128, 256, 1 << 20, 1 << 31, 1 << 40, 1 << 62, -1}
	next := func() int {
		if len(b) == 0 {
			return 0
		}
		v := b[0]
		b = b[1:]
		return int(v)
	}
	g := Group{Module: "m", Tensors: map[string]Tensor{}, Metadata: map[string]string{"m.weight": string(fact), "_quantization_metadata": string(config)}}
	g.Config, _ = FindConfig(map[string][]byte{"config.json": config})
	for len(b) > 0 && len(g.Tensors) < 24 {
		s := suffixes[next()%len(suffixes)].Suffix
		t := Tensor{Name: TensorName("m", s), DType: dtypes[next()%len(dtypes)]}
		for range next() % 5 {
			t.Shape = append(t.Shape, sizes[next()%len(sizes)])
		}
		if next()%2 == 1 {
			t.Data = fact
		}
		g.Tensors[s] = t
	}
	return g
}

// FuzzRecognise: hostile shapes, dtypes, configurations and facts give a match, a refusal or nothing, never a panic; what is matched has inputs of exactly
// the sizes of its tensors, an output within bounds, and decodes any bytes without writing or reading beyond.
func FuzzRecognise(f *testing.F) {
	seed := func(config, fact string, tensors ...[]byte) {
		var b []byte
		for _, t := range tensors {
			b = append(b, t...)
		}
		f.Add(b, []byte(config), []byte(fact))
	}
	at := func(suffix string) byte {
		for i, s := range Suffixes() {
			if s.Suffix == suffix {
				return byte(i)
			}
		}
		return 0
	}
	seed(`{"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}}`, "", []byte{at("weight"), 2, 2, 14, 15, 0}, []byte{at("weight_scale_inv"), 5, 2, 1, 2, 0})
	seed(`{}`, "", []byte{at("weight_packed"), 0, 2, 5, 7, 0}, []byte{at("weight_scale"), 0, 2, 5, 1, 0})
	seed(`{"quantization_config":{"quant_method":"gptq","bits":4}}`, "", []byte{at("qweight"), 8, 2, 5, 11, 0}, []byte{at("qzeros"), 8, 2, 1, 5, 0}, []byte{at("scales"), 7, 2, 1, 11, 0})
	seed(`{"quantization_config":{"quant_method":"gptq","checkpoint_format":"gptq_p"}}`, "", []byte{at("qweight"), 8, 2, 3, 13, 0}, []byte{at("qzeros"), 8, 2, 1, 3, 0}, []byte{at("scales"), 7, 2, 1, 13, 0})
	seed(`{}`, `{"quant_type":"nf4","blocksize":64,"shape":[8,16]}`, []byte{at("weight"), 0, 2, 11, 1, 0}, []byte{at(bnbAbsmax), 5, 1, 2, 0}, []byte{at(bnbStateNF4), 0, 1, 10, 1})
	seed(`{"quantization":{"bits":4,"group_size":32}}`, "", []byte{at("weight"), 9, 2, 4, 5, 0}, []byte{at("scales"), 6, 2, 4, 2, 0}, []byte{at("biases"), 6, 2, 4, 2, 0})
	seed(`{}`, `{"format":"nvfp4"}`, []byte{at("weight"), 0, 2, 7, 5, 0}, []byte{at("weight_scale"), 2, 2, 14, 4, 0}, []byte{at("weight_scale_2"), 5, 0, 0}, []byte{at("comfy_quant"), 0, 1, 1, 1})
	f.Fuzz(func(t *testing.T, tensors, config, fact []byte) {
		g := fuzzGroup(tensors, config, fact)
		Facts(g)
		m, err := Recognise(g)
		var refused *Refused
		if err != nil && (!errors.As(err, &refused) || refused.Tensor == "" || refused.Reason == "" || m != nil) {
			t.Fatalf("match %v, error %v", m, err)
		}
		if m == nil || m.Codec == nil {
			return
		}
		checkMatch(t, g, m)
	})
}

// checkMatch checks a match's sizes, and its codec over random bytes if it is small.
func checkMatch(t *testing.T, g Group, m *Match) {
	t.Helper()
	lens := m.Codec.InputLens()
	if len(lens) != len(m.Inputs) {
		t.Fatalf("%d inputs, %d suffixes", len(lens), len(m.Inputs))
	}
	var total int64
	for i, s := range m.Inputs {
		mm := matcher{group: &g}
		want := mm.bytes(s)
		if g.Tensors[s].DType == "F4" {
			n, _ := product(append([]int64{1}, g.Tensors[s].Shape...)...)
			want = n / 2
		}
		if lens[i] != want {
			t.Fatalf("%s: input %q has %d bytes, the codec expects %d", m.Codec, s, want, lens[i])
		}
		total += lens[i]
	}
	elements, ok := product(append([]int64{1}, m.Shape...)...)
	if !ok || m.Codec.Len() != 2*elements || m.Codec.Len() > maxGrowth*total {
		t.Fatalf("%s: %d bytes for shape %v from %d", m.Codec, m.Codec.Len(), m.Shape, total)
	}
	if !strings.Contains(m.Codec.String(), "[") && total > 1<<16 {
		t.Fatalf("%s: no shape in the text form", m.Codec)
	}
	if total > 1<<16 || m.Codec.Len() > 1<<16 {
		return
	}
	in := make([][]byte, len(lens))
	r := rand.New(rand.NewPCG(1, uint64(total)))
	for i, n := range lens {
		in[i] = make([]byte, n)
		for k := range in[i] {
			in[i][k] = byte(r.Uint32())
		}
		if strings.HasSuffix(m.Inputs[i], "g_idx") {
			for k := 0; k+4 <= len(in[i]); k += 4 {
				binary.LittleEndian.PutUint32(in[i][k:], 0)
			}
		}
	}
	all := whole(t, m.Codec, in)
	off := int64(r.IntN(len(all)))
	n := 1 + r.Int64N(int64(len(all))-off)
	if got := decode(t, m.Codec, in, off, n); string(got) != string(all[off:off+n]) {
		t.Fatalf("%s: window [%d, +%d) differs from the whole", m.Codec, off, n)
	}
	if m.Rows != nil && m.Rows.Len() != m.Codec.Len() {
		t.Fatalf("%s: %d bytes, in rows %d", m.Codec, m.Codec.Len(), m.Rows.Len())
	}
	var _ plan.Codec = m.Codec
}

// FuzzFindConfig: hostile declarations give values within bounds, or a problem, or an error; never a panic.
func FuzzFindConfig(f *testing.F) {
	for _, s := range []string{
		`{"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}`,
		`{"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": {"num_bits": 4, "group_size": 32}}, "b": {"weights": null}}, "ignore": ["re:(", "x"]}}`,
		`{"quantization": {"bits": 4, "group_size": 64, "model.a": {"bits": 8}}}`,
		`{"text_config": {"quantization_config": {"bits": 1e3, "group_size": NaN}}}`,
		`{"quantization_config": [], "compression_config": {"weight_block_size": "128x"}}`,
	} {
		f.Add([]byte(s), "model.a")
	}
	f.Fuzz(func(t *testing.T, content []byte, module string) {
		c, err := FindConfig(map[string][]byte{"config.json": content})
		if err != nil {
			return
		}
		if c.Bits < 0 || c.Bits > 16 || c.GroupSize < -1 || c.GroupSize > 1<<20 || c.Block[0] < 0 || c.Block[0] > 1<<16 || c.Block[1] < 0 || c.Block[1] > 1<<16 {
			t.Fatalf("%+v", c)
		}
		if (c.Block[0] == 0) != (c.Block[1] == 0) {
			t.Fatalf("half a block: %v", c.Block)
		}
		s := NewSurvey(c)
		s.CompareSkips()
		s.Add(module, nil, nil)
		s.Disagreements()
	})
}
