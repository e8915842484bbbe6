package release

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"weightfs/internal/testrel"
	"weightfs/sources"
	"weightfs/sources/safetensors"
)

var update = flag.Bool("update", false, "write the golden files anew")

// generated reads a release of internal/testrel.
type generated struct{ *testrel.Release }

func (g generated) listing() *sources.Listing {
	l := &sources.Listing{Name: "file:///" + g.Name, Time: time.Unix(1700000000, 0), Complete: true}
	for i := range g.Files {
		l.Files = append(l.Files, sources.Entry{Path: g.Files[i].Path, Size: g.Files[i].Size})
	}
	return l
}

func (g generated) Header(ctx context.Context, path string, buf []byte) ([]byte, error) {
	b := append(buf[:0], make([]byte, g.File(path).HeaderLen())...)
	return b, g.ReadAt(ctx, path, b, 0)
}

func (g generated) ReadFile(ctx context.Context, path string, _ int64) ([]byte, error) {
	b := make([]byte, g.File(path).Size)
	return b, g.ReadAt(ctx, path, b, 0)
}

func (g generated) ReadAt(_ context.Context, path string, p []byte, off int64) error {
	if _, err := g.File(path).ReadAt(p, off); err != nil && err != io.EOF {
		return err
	}
	return nil
}

func (g generated) open(t testing.TB) *Release {
	t.Helper()
	rel, err := Open(context.Background(), g.listing(), g)
	if err != nil {
		t.Fatal(err)
	}
	return rel
}

// TestSummaryText compares the text of two releases with golden files: per-expert FP8 in two shards with a layer of MTP, one copy and
// one pickle left out, and a config that is wrong; and fused experts.
func TestSummaryText(t *testing.T) {
	fp8 := func(base string, out, in int64) []spec {
		return []spec{typed(safetensors.F8_E4M3, base+".weight", out, in), bf(base+".weight_scale_inv", (out+127)/128, (in+127)/128)}
	}
	const m = "model.layers.{L}.mlp.experts.{E}."
	gu := append(fp8(m+"gate_proj", 144, 320), fp8(m+"up_proj", 144, 320)...)
	mtp := append(append(fp8("mtp.layers.0.mlp.experts.{E}.gate_proj", 144, 320), fp8("mtp.layers.0.mlp.experts.{E}.up_proj", 144, 320)...), fp8("mtp.layers.0.mlp.experts.{E}.down_proj", 320, 144)...)
	single := newFake().shard(t, "model-00001-of-00002.safetensors", expand([]int{1, 2, 4}, 3, gu...)...).
		shard(t, "model-00002-of-00002.safetensors", append(expand([]int{1, 2, 4}, 3, append(fp8(m+"down_proj", 320, 144), mtp...)...), bf16("lm_head.weight", 1000, 320), ten{"model.bias", safetensors.F32, []int64{7}})...).
		shard(t, "consolidated.safetensors", bf16("x", 3)).file("pytorch_model.bin", "x").
		file("config.json", `{"model_type": "qwen3_moe", "num_hidden_layers": 5, "num_experts": 4, "hidden_size": 320, "quantization_config": {"quant_method": "fp8"}}`)
	fused := newFake().shard(t, "model.safetensors", expand([]int{0, 1}, 4, bf("model.layers.{L}.mlp.experts.gate_up_proj", 4, 64, 96), bf("model.layers.{L}.mlp.experts.down_proj", 4, 48, 64), bf("model.layers.{L}.mlp.gate.weight", 4, 64))...)
	for name, f := range map[string]*fake{"single": single, "fused": fused} {
		t.Run(name, func(t *testing.T) {
			l := f.listing()
			l.Name, l.Revision, l.Time = "hf://demo/"+name, "0123456789abcdef", time.Unix(1700000000, 0)
			rel, err := Open(context.Background(), l, f)
			if err != nil {
				t.Fatal(err)
			}
			s := Summarise(rel)
			var text bytes.Buffer
			if err := WriteText(&text, s); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".txt", text.Bytes())
			text.Reset()
			e := json.NewEncoder(&text)
			e.SetIndent("", "  ")
			if err := e.Encode(s); err != nil {
				t.Fatal(err)
			}
			golden(t, name+".json", text.Bytes())
		})
	}
}

// TestGenerated opens every small generated release: shares add up, and the ranges of an expert are those of its layout.
func TestGenerated(t *testing.T) {
	ranges := map[string][]Count{"qwen-fp8": {{4, 36}}, "kimi-mxfp4": {{1, 36}}, "qwen-fused": {{2, 18}}}
	for _, r := range testrel.Small() {
		t.Run(r.Name, func(t *testing.T) {
			rel := generated{r}.open(t)
			s := Summarise(rel)
			tensors, size := s.Resident.Tensors, s.Resident.Bytes
			for _, x := range []*ExpertSummary{s.Experts, s.MTP} {
				if x != nil {
					tensors, size = tensors+x.Tensors, size+x.Bytes
				}
			}
			if tensors != s.Tensors || size != s.Bytes {
				t.Errorf("resident and experts are %d tensors of %d bytes, the release has %d of %d", tensors, size, s.Tensors, s.Bytes)
			}
			if want := ranges[r.Name]; want != nil && !slices.Equal(s.Experts.Ranges, want) {
				t.Errorf("experts by ranges %v, want %v", s.Experts.Ranges, want)
			}
			if s.Experts == nil && !strings.HasPrefix(s.NoExperts, "dense") {
				t.Errorf("refused: %s", s.NoExperts)
			}
			checkParts(t, rel, rel.Experts)
			checkParts(t, rel, rel.MTP)
		})
	}
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "summaries", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; got\n%s", path, got)
	}
}

// TestQwenMaxNumbers checks the numbers that the FP8 release of Qwen3.8-Max was published with.
func TestQwenMaxNumbers(t *testing.T) {
	if testing.Short() {
		t.Skip("287,119 tensors")
	}
	s := Summarise(generated{testrel.Qwen38MaxFP8()}.open(t))
	if s.Tensors != 287119 || s.Shards != 213 || s.Resident.Tensors != 1423 || s.Experts.Tensors+s.MTP.Tensors != 285696 {
		t.Errorf("%d tensors in %d shards, %d resident, %d + %d of experts", s.Tensors, s.Shards, s.Resident.Tensors, s.Experts.Tensors, s.MTP.Tensors)
	}
	if x := s.Experts; x.BlockBytes != 50337792 || !slices.Equal(x.Ranges, []Count{{4, 92 * 512}}) || x.Split != 92*512 || !slices.Equal(x.ShardsPerLayer, []Count{{2, 92}}) {
		t.Errorf("block of %d bytes, ranges %v, %d split, layers by shards %v", x.BlockBytes, x.Ranges, x.Split, x.ShardsPerLayer)
	}
}

// kimiK3 writes the headers of a release with Kimi K3's names and shapes of experts: 92 layers of 896 experts in 92 shards, experts in
// lexicographic order, and resident tensors that make 497,220 in 96 shards.
func kimiK3(t testing.TB) *fake {
	f := newFake().file("config.json", `{"model_type": "kimi_k3", "num_hidden_layers": 93, "num_experts": 896}`)
	order := make([]string, 896)
	for e := range order {
		order[e] = strconv.Itoa(e)
	}
	slices.Sort(order)
	for i := range 96 {
		var tensors []ten
		for _, e := range order {
			if i >= 92 {
				break
			}
			for w := 1; w <= 3; w++ {
				name := fmt.Sprintf("language_model.model.layers.%d.block_sparse_moe.experts.%s.w%d.", i+1, e, w)
				shape := []int64{3072, 1792}
				if w == 2 {
					shape = []int64{3584, 1536}
				}
				tensors = append(tensors, ten{name + "weight_packed", safetensors.U8, shape}, ten{name + "weight_scale", safetensors.U8, []int64{shape[0], shape[1] / 16}})
			}
		}
		for j := range 27 {
			tensors = append(tensors, bf16(fmt.Sprintf("language_model.model.layers.%d.self_attn.part_%d.weight", i+1, j), 128, 128))
		}
		for j := range 36 {
			if i == 95 {
				tensors = append(tensors, bf16(fmt.Sprintf("vision_tower.blocks.%d.weight", j), 128, 128))
			}
		}
		f.shard(t, fmt.Sprintf("model-%05d-of-00096.safetensors", i+1), tensors...)
	}
	return f
}

// TestKimiK3 opens 497,220 tensors: the layout is right, what is kept is under 58 MB, and what is made is little more.
func TestKimiK3(t *testing.T) {
	if testing.Short() {
		t.Skip("497,220 tensors")
	}
	f := kimiK3(t)
	l := f.listing()
	before := heap()
	var was, is runtime.MemStats
	runtime.ReadMemStats(&was)
	start := time.Now()
	rel, err := Open(context.Background(), l, f)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	runtime.ReadMemStats(&is)
	kept := int64(heap() - before)
	each := float64(is.TotalAlloc-was.TotalAlloc) / float64(rel.Len())
	t.Logf("opened in %v, %d bytes kept, %.1f a tensor, of %.1f that were made in %d pieces", took, kept, float64(kept)/float64(rel.Len()), each, is.Mallocs-was.Mallocs)
	if rel.Len() != 497220 || kept > 58e6 {
		t.Errorf("%d tensors, %d bytes kept", rel.Len(), kept)
	}
	if pieces := is.Mallocs - was.Mallocs; each > 300 || pieces > 20_000 {
		t.Errorf("opening made %.1f bytes a tensor in %d pieces", each, pieces)
	}
	start = time.Now()
	s := Summarise(rel)
	t.Logf("summary in %v", time.Since(start))
	x := s.Experts
	if x == nil {
		t.Fatal(s.NoExperts)
	}
	if x.BlockBytes != 17547264 || x.BlockByteLength != 17547264 || !slices.Equal(x.Ranges, []Count{{1, 92 * 896}}) || x.Split != 0 || x.Tensors != 494592 {
		t.Errorf("block %d (%d padded), ranges %v, %d split, %d tensors", x.BlockBytes, x.BlockByteLength, x.Ranges, x.Split, x.Tensors)
	}
	start = time.Now()
	rel.classify()
	t.Logf("classified again in %v", time.Since(start))
	runtime.KeepAlive(f)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestHostileText has names that would steer a terminal: nothing but printable ASCII is written.
func TestHostileText(t *testing.T) {
	evil := "\x1b[2J\u202e\u0085\x7f"
	f := newFake().shard(t, "model.safetensors", expandNames(evil)...).file("config.json", `{"model_type": "\u001b[31m", "text_config": {"\u009bx": {"quantization_config": {}}}}`)
	l := f.listing()
	l.Name, l.Revision = "hf://"+evil, evil
	l.Hidden = append(l.Hidden, sources.Hidden{Path: evil, Reason: evil})
	rel, err := Open(context.Background(), l, f)
	if err != nil {
		t.Fatal(err)
	}
	s := Summarise(rel)
	var text bytes.Buffer
	if err := WriteText(&text, s); err != nil {
		t.Fatal(err)
	}
	for i, c := range text.Bytes() {
		if c != '\n' && (c < ' ' || c > '~') {
			t.Fatalf("text has byte %#x at %q", c, text.Bytes()[max(0, i-40):i+1])
		}
	}
}

func expandNames(prefix string) []ten {
	return expand([]int{0}, 2, pw(prefix+".layers.{L}.mlp.experts.{E}.")...)
}

// failingWriter fails after some bytes.
type failingWriter int

func (w *failingWriter) Write(p []byte) (int, error) {
	if *w -= failingWriter(len(p)); *w < 0 {
		return 0, io.ErrShortWrite
	}
	return len(p), nil
}

// TestWriteTextFails passes on the writer's error.
func TestWriteTextFails(t *testing.T) {
	w := failingWriter(100)
	if err := WriteText(&w, Summarise(one(t, "", expandNames("model")...))); err != io.ErrShortWrite {
		t.Errorf("error %v", err)
	}
}

// TestParameters counts the weights of packed formats.
func TestParameters(t *testing.T) {
	U8, I8, I32, U32, F32, E4M3, E8M0 := safetensors.U8, safetensors.I8, safetensors.I32, safetensors.U32, safetensors.F32, safetensors.F8_E4M3, safetensors.F8_E8M0
	for _, c := range []struct {
		name, config string
		tensors      []ten
		want         int64
		unknown      string
	}{
		{"plain", "", []ten{bf16("a.weight", 3, 4), bf16("a.bias", 3), bf16("norm.scale", 5), {"s", F32, nil}}, 21, ""},
		{"FP8 block", "", []ten{{"a.weight", E4M3, []int64{256, 128}}, bf16("a.weight_scale_inv", 2, 1)}, 256 * 128, ""},
		{"fused FP8", "", []ten{{"l.0.mlp.experts.down_proj", E4M3, []int64{2, 8, 6}}, bf16("l.0.mlp.experts.down_proj_scale_inv", 2, 1, 1)}, 96, ""},
		{"MXFP4", "", []ten{{"a.weight_packed", U8, []int64{4, 16}}, {"a.weight_scale", U8, []int64{4, 1}}}, 128, ""},
		{"gpt-oss", "", []ten{{"experts.down_proj_blocks", U8, []int64{2, 4, 1, 16}}, {"experts.down_proj_scales", U8, []int64{2, 4, 1}}, bf16("experts.down_proj_bias", 2, 4)}, 256 + 8, ""},
		{"gpt-oss original", "", []ten{{"mlp2_weight.blocks", U8, []int64{2, 4, 1, 16}}, {"mlp2_weight.scales", U8, []int64{2, 4, 1}}}, 256, ""},
		{"DeepSeek-V4", "", []ten{{"w1.weight", I8, []int64{4, 16}}, {"w1.scale", E8M0, []int64{4, 1}}, {"wq.weight", E4M3, []int64{128, 128}}, {"wq.scale", E8M0, []int64{1, 1}}}, 128 + 128*128, ""},
		{"NVFP4", "", []ten{{"a.weight", U8, []int64{4, 16}}, {"a.weight_scale", E4M3, []int64{4, 2}}, {"a.weight_scale_2", F32, nil}, {"a.input_scale", F32, nil}}, 128, ""},
		{"INT4", `{"quantization_config": {"config_groups": {"g": {"weights": {"num_bits" : 4}}}}}`,
			[]ten{{"a.weight_packed", I32, []int64{4, 2}}, bf16("a.weight_scale", 4, 1), {"a.weight_shape", I32, []int64{2}}}, 64, ""},
		{"INT4, bits not said", "", []ten{{"a.weight_packed", I32, []int64{4, 2}}, bf16("a.weight_scale", 4, 1), bf16("b.weight", 5)}, 5, "a.weight_packed"},
		{"GPTQ", `{"quantization_config": {"bits": 8}}`, []ten{{"a.qweight", I32, []int64{4, 8}}, {"a.qzeros", I32, []int64{1, 2}}, bf16("a.scales", 1, 8), {"a.g_idx", I32, []int64{16}}}, 128, ""},
		{"MLX", `{"quantization": {"group_size": 64, "bits": 4}}`, []ten{{"a.weight", U32, []int64{4, 8}}, bf16("a.scales", 4, 1), bf16("a.biases", 4, 1)}, 256, ""},
		{"bitsandbytes", "", []ten{{"a.weight", U8, []int64{32, 1}}, {"a.weight.absmax", F32, []int64{1}}, {"a.weight.quant_map", F32, []int64{16}}, {"a.weight.quant_state.bitsandbytes__nf4", U8, []int64{80}}}, 64, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Summarise(one(t, c.config, c.tensors...))
			if s.Parameters != c.want || s.NotCounted != c.unknown {
				t.Errorf("%d parameters, not counted %q; want %d, %q", s.Parameters, s.NotCounted, c.want, c.unknown)
			}
		})
	}
}

// TestTextOfLists covers what goldens do not: files left out and hidden, notes.
func TestTextOfLists(t *testing.T) {
	f := newFake().shard(t, "model.safetensors", bf16("x", 1)).shard(t, "consolidated.safetensors", bf16("x", 1)).file("config.json", "{")
	for i := range 60 {
		f.file(fmt.Sprintf("old/%d.bin", i), strings.Repeat("x", 2000))
	}
	var text bytes.Buffer
	if err := WriteText(&text, Summarise(f.open(t))); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"consolidated.safetensors, 66 bytes: another copy", "old/0.bin, 2,000 bytes (2.0 kB): not a safetensors file", "\nfiles left out           21 more\n", "\nnote                     config.json at byte 1: expected"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

// TestGeneratedFamilies opens a generated release in every naming form.
func TestGeneratedFamilies(t *testing.T) {
	rows := map[string]bool{}
	for _, f := range testrel.Families() {
		t.Run(f.Name, func(t *testing.T) {
			rel := generated{f.Release}.open(t)
			if rel.Experts == nil || (rel.MTP == nil) != (f.MTP == 0) {
				t.Fatalf("experts %q, MTP %q", rel.NoExperts, rel.NoMTP)
			}
			rows[rel.Experts.Family] = true
			s := Summarise(rel)
			if s.Experts.Tensors != f.Experts || s.MTP != nil && s.MTP.Tensors != f.MTP || s.Experts.PerLayer != 5 || !slices.Equal(s.Experts.Layers, []int{1, 3}) {
				t.Errorf("%d tensors of experts, want %d; %d experts in layers %v", s.Experts.Tensors, f.Experts, s.Experts.PerLayer, s.Experts.Layers)
			}
			if got := residentNames(rel); !slices.Equal(got, f.Resident) {
				t.Errorf("resident %v\nwant %v", got, f.Resident)
			}
			if latent := f.Name == "family-nemotron-h"; len(rel.Notes) > 0 != latent {
				t.Errorf("notes %q", rel.Notes)
			}
			checkParts(t, rel, rel.Experts)
			checkParts(t, rel, rel.MTP)
		})
	}
	for _, r := range families {
		if !rows[r.name] && r.name != "moe.experts" {
			t.Errorf("no generated release has the form %s", r.name)
		}
	}
}
