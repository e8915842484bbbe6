package transform

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"weightfs/fs/plan"
	"weightfs/internal/testrel"
)

// form says where a family keeps the matrices of an expert, under the names of the BF16 view. {L} and {E} stand for layer and expert.
type form struct {
	prefix                string
	gate, up, down, joint string // joint: gate and up in one
	fused                 bool   // axis 0 is the expert (dbrx: runs of rows)
	inOut                 string // which of them are [in, out]: letters of g, u, d, j
	alternate, upFirst    bool
}

func forms() []form {
	pe := func(prefix, gate, up, down string) form { return form{prefix: prefix, gate: gate, up: up, down: down} }
	var out []form
	for _, before := range []string{"model.", "language_model.model.", "model.language_model.", ""} {
		for _, block := range []string{"mlp.", "block_sparse_moe.", "feed_forward.", "ffn.", ""} {
			prefix := before + "layers.{L}." + block + "experts.{E}."
			out = append(out, pe(prefix, "gate_proj.weight", "up_proj.weight", "down_proj.weight"), pe(prefix, "w1.weight", "w3.weight", "w2.weight"))
			fused := before + "layers.{L}." + block
			out = append(out,
				form{prefix: fused + "experts.", joint: "gate_up_proj", down: "down_proj", fused: true},
				form{prefix: fused + "switch_mlp.", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight", fused: true},
				form{prefix: fused + "experts.switch_glu.", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight", fused: true})
		}
	}
	return append(out,
		form{prefix: "model.layers.{L}.block_sparse_moe.", joint: "input_linear.weight", down: "output_linear.weight", fused: true},
		form{prefix: "model.layers.{L}.moe.", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight", fused: true},
		form{prefix: "transformer.blocks.{L}.ffn.experts.mlp.", gate: "w1", up: "v1", down: "w2", fused: true, inOut: "d"},
		form{prefix: "model.layers.{L}.mlp.experts.{E}.", joint: "gate_and_up_proj.weight", down: "down_proj.weight", upFirst: true},
		form{prefix: "ernie.layers.{L}.mlp.experts.{E}.", joint: "up_gate_proj.weight", down: "down_proj.weight", inOut: "jd"},
		form{prefix: "backbone.layers.{L}.mixer.experts.{E}.", up: "up_proj.weight", down: "down_proj.weight"},
		pe("transformer.decoder_layer.{L}.moe.{E}.", "linear.weight", "linear_v.weight", "linear_1.weight"),
		form{prefix: "block.{L}.mlp.", joint: "mlp1_weight", down: "mlp2_weight", fused: true, alternate: true},
	)
}

// inOuts are the families whose fused tensors are [E, in, out] in BF16; alternates those whose gate and up rows alternate.
var (
	inOuts     = []string{"family-qwen3-vl-moe", "family-llama4", "family-gpt-oss", "family-gpt-oss-bf16"}
	alternates = []string{"family-gpt-oss", "family-gpt-oss-bf16", "family-gpt-oss-original"}
)

// parsed is a safetensors file set as a test reads it: name to dtype, shape and bytes.
type parsed map[string]dumbTensor

// parse reads the shards of a model directory with encoding/json.
func parse(t *testing.T, dir plan.Dir, m *memory, view string) parsed {
	t.Helper()
	out := parsed{}
	for _, f := range files(t, dir, view) {
		if !strings.HasSuffix(f.path, ".safetensors") {
			continue
		}
		b := content(t, m, f)
		n := 8 + binary.LittleEndian.Uint64(b)
		if n%4096 != 0 {
			t.Errorf("%s: data begins at %d", f.path, n)
		}
		var header map[string]json.RawMessage
		if err := json.Unmarshal(b[8:n], &header); err != nil {
			t.Fatalf("%s: %v", f.path, err)
		}
		delete(header, "__metadata__")
		for name, text := range header {
			var x struct {
				DType string
				Shape []int64
				At    [2]uint64 `json:"data_offsets"`
			}
			if err := json.Unmarshal(text, &x); err != nil {
				t.Fatal(err)
			}
			if _, twice := out[name]; twice {
				t.Errorf("%s: %s twice", view, name)
			}
			out[name] = dumbTensor{name, x.DType, x.Shape, b[n+x.At[0] : n+x.At[1]]}
		}
	}
	return out
}

// formOf finds the form of a release by the tensor of down of layer 1.
func formOf(t *testing.T, name string, bf16 parsed) form {
	t.Helper()
	for _, f := range forms() {
		first := f.joint
		if first == "" {
			first = f.up
		}
		_, down := bf16[f.name(f.down, 1, 0)]
		if _, ok := bf16[f.name(first, 1, 0)]; ok && down {
			if slices.Contains(inOuts, name) {
				f.inOut = "jd"
			}
			f.alternate = slices.Contains(alternates, name)
			return f
		}
	}
	t.Fatalf("%s: no form", name)
	return form{}
}

func (f form) name(last string, layer, expert int) string {
	return strings.NewReplacer("{L}", fmt.Sprint(layer), "{E}", fmt.Sprint(expert)).Replace(f.prefix) + last
}

// matrix is gate, up or down of one expert as rows of BF16, [out][in].
func (f form) matrix(bf16 parsed, p string, layer, expert, experts int) [][]uint16 {
	last := map[string]string{"gate": f.gate, "up": f.up, "down": f.down}[p]
	joint := f.joint != "" && p != "down"
	letter := p[:1]
	if joint {
		last, letter = f.joint, "j"
	}
	if last == "" {
		return nil
	}
	d := bf16[f.name(last, layer, expert)]
	values := narrowBF16(d)
	if f.fused {
		n := len(values) / experts
		values = values[expert*n : (expert+1)*n]
	}
	cols := int(d.shape[len(d.shape)-1])
	var rows [][]uint16
	for ; len(values) > 0; values = values[cols:] {
		rows = append(rows, values[:cols])
	}
	if strings.Contains(f.inOut, letter) {
		rows = turned(rows)
	}
	if joint {
		rows = f.half(rows, p)
	}
	return rows
}

func (f form) half(rows [][]uint16, p string) (out [][]uint16) {
	for i, row := range rows {
		second := i >= len(rows)/2
		if f.alternate {
			second = i%2 == 1
		}
		if second != (p == "up") == f.upFirst {
			out = append(out, row)
		}
	}
	return out
}

func turned(rows [][]uint16) [][]uint16 {
	out := make([][]uint16, len(rows[0]))
	for c := range out {
		for r := range rows {
			out[c] = append(out[c], rows[r][c])
		}
	}
	return out
}

// narrowBF16 is the elements of a tensor as BF16.
func narrowBF16(d dumbTensor) []uint16 {
	data := d.data
	if d.dtype == "F32" {
		data = roundF32(data)
	}
	out := make([]uint16, len(data)/2)
	for i := range out {
		out[i] = binary.LittleEndian.Uint16(data[2*i:])
	}
	return out
}

func flat(rows [][]uint16) []byte {
	var out []byte
	for _, row := range rows {
		for _, v := range row {
			out = binary.LittleEndian.AppendUint16(out, v)
		}
	}
	return out
}

type manifestPart struct {
	Name, DType, Tensor string
	Offset, ByteLength  int
	Shape               []int
}

func readManifest(t *testing.T, dir plan.Dir, m *memory, view string) (layers []int, experts int, parts []manifestPart) {
	t.Helper()
	var x struct {
		Layers          []int
		ExpertsPerLayer int
		Parts           []manifestPart
	}
	if err := json.Unmarshal(at(t, dir, m, view+"/manifest.json"), &x); err != nil {
		t.Fatal(err)
	}
	return x.Layers, x.ExpertsPerLayer, x.Parts
}

// TestFamilies reads the experts of every naming form out of every view that has them.
func TestFamilies(t *testing.T) {
	for _, f := range testrel.Families() {
		t.Run(f.Name, func(t *testing.T) {
			dir, m := open(f.Release)
			checkFamilyNative(t, dir, m, f)
			if absentView(t, dir, "bf16") {
				t.Skip("bf16 is absent")
			}
			bf16 := parse(t, dir, m, "bf16")
			checkFamilyBF16(t, dir, m, bf16, formOf(t, f.Name, bf16))
			checkComputedRegrouped(t, dir, m, f)
			readAll(t, dir, m)
		})
	}
}

func absentView(t *testing.T, dir plan.Dir, view string) bool {
	_, err := plan.Walk(t.Context(), dir, view)
	if err != nil {
		t.Log(err)
	}
	return err != nil
}

// checkFamilyNative: every expert tensor of the main layers is a part of some block, byte for byte.
func checkFamilyNative(t *testing.T, dir plan.Dir, m *memory, f testrel.Family) {
	layers, experts, parts := readManifest(t, dir, m, "experts/native")
	if fmt.Sprint(layers) != "[1 3]" || experts != 5 {
		t.Fatalf("layers %v, %d experts", layers, experts)
	}
	used := map[string]bool{}
	for _, l := range layers {
		for e := range experts {
			block := at(t, dir, m, fmt.Sprintf("experts/native/blocks/L%03d/E%03d.bin", l, e))
			for _, p := range parts {
				name := expand(p.Tensor, l, e)
				src := f.Tensor(name)
				if src == nil {
					t.Fatalf("part %s: no tensor %s", p.Name, name)
				}
				used[name] = true
				want := src.Bytes()
				if !strings.Contains(p.Tensor, "{expert}") {
					want = want[e*len(want)/experts : (e+1)*len(want)/experts]
				}
				if got := block[p.Offset : p.Offset+p.ByteLength]; !bytes.Equal(got, want) {
					t.Fatalf("layer %d expert %d: part %s differs at %d", l, e, p.Name, firstDiff(got, want))
				}
			}
		}
	}
	if len(used) != f.Experts {
		t.Errorf("%d tensors are in blocks, the release has %d", len(used), f.Experts)
	}
}

// checkFamilyBF16: parts gate, up and down of experts/bf16 are the matrices of bf16/.
func checkFamilyBF16(t *testing.T, dir plan.Dir, m *memory, bf16 parsed, f form) {
	layers, experts, parts := readManifest(t, dir, m, "experts/bf16")
	for _, l := range layers {
		for e := range experts {
			block := at(t, dir, m, fmt.Sprintf("experts/bf16/blocks/L%03d/E%03d.bin", l, e))
			seen := ""
			for _, p := range parts {
				projection, suffix, _ := strings.Cut(p.Name, ".")
				got := block[p.Offset : p.Offset+p.ByteLength]
				want := f.matrix(bf16, projection, l, e, experts)
				switch suffix {
				case "weight":
					seen += projection + " "
					if p.DType != "BF16" || fmt.Sprint(p.Shape) != fmt.Sprint([]int{len(want), len(want[0])}) {
						t.Fatalf("part %s is %s %v", p.Name, p.DType, p.Shape)
					}
				case "bias":
					want = f.bias(bf16, projection, l, e, experts)
				default:
					t.Fatalf("part %s", p.Name)
				}
				if !bytes.Equal(got, flat(want)) {
					t.Fatalf("layer %d expert %d: part %s differs at %d", l, e, p.Name, firstDiff(got, flat(want)))
				}
			}
			if seen != "gate up down " && !(f.gate == "" && f.joint == "" && seen == "up down ") {
				t.Fatalf("parts are %s", seen)
			}
		}
	}
}

// bias is a projection's bias as one column; in gpt-oss it is [E, out] beside the fused weights.
func (f form) bias(bf16 parsed, p string, layer, expert, experts int) [][]uint16 {
	last := strings.TrimSuffix(map[string]string{"gate": f.joint, "up": f.joint, "down": f.down}[p], "_weight") + "_bias"
	values := narrowBF16(bf16[f.name(last, layer, 0)])
	n := len(values) / experts
	var rows [][]uint16
	for _, v := range values[expert*n : (expert+1)*n] {
		rows = append(rows, []uint16{v})
	}
	if p != "down" {
		rows = f.half(rows, p)
	}
	return rows
}

// readAll reads every file of every view: sizes are right and nothing fails. (Tensors of FP8 have NaN in them, which 4 bits cannot hold.)
func readAll(t *testing.T, dir plan.Dir, m *memory) {
	for _, f := range filesBut(t, dir) {
		if !strings.Contains(f.path, "/q4-") {
			content(t, m, f)
		}
	}
}

// TestPackedExperts: experts in column-packed formats, whose tensors lie across their matrices, come out as bf16/ has them.
func TestPackedExperts(t *testing.T) {
	lines := []string{"model.layers.1.mlp.gate.weight BF16 2 64", "model.layers.1.input_layernorm.weight BF16 64"}
	for e := range 2 {
		for _, p := range []struct {
			name    string
			out, in int
		}{{"gate", 32, 64}, {"up", 32, 64}, {"down", 64, 32}} {
			base := fmt.Sprintf("model.layers.1.mlp.experts.%d.%s_proj.", e, p.name)
			lines = append(lines,
				fmt.Sprint(base, "qweight I32 ", p.in/8, " ", p.out), fmt.Sprint(base, "qzeros I32 ", p.in/32, " ", p.out/8),
				fmt.Sprint(base, "scales F16 ", p.in/32, " ", p.out), fmt.Sprint(base, "g_idx I32 ", p.in))
		}
	}
	m := handMade(`{"hidden_size":64,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32,"desc_act":false}}`, lines...)
	for i, f := range m.files {
		if f.path == "model.safetensors" {
			m.files[i].ReaderAt = bytes.NewReader(groupIndices(f.bytes()))
		}
	}
	dir := m.tree()
	bf16 := parse(t, dir, m, "bf16")
	checkPacked(t, dir, m, bf16, form{prefix: "model.layers.{L}.mlp.experts.{E}.", gate: "gate_proj.weight", up: "up_proj.weight", down: "down_proj.weight"})
}

// groupIndices makes every g_idx of a file column/32.
func groupIndices(b []byte) []byte {
	n := 8 + binary.LittleEndian.Uint64(b)
	var header map[string]struct {
		At [2]uint64 `json:"data_offsets"`
	}
	if err := json.Unmarshal(bytes.Replace(b[8:n], []byte(`"__metadata__":{"format":"pt"},`), nil, 1), &header); err != nil {
		panic(err)
	}
	for name, x := range header {
		if strings.HasSuffix(name, "g_idx") {
			for i := uint64(0); i < (x.At[1]-x.At[0])/4; i++ {
				binary.LittleEndian.PutUint32(b[n+x.At[0]+4*i:], uint32(i/32))
			}
		}
	}
	return b
}

func checkPacked(t *testing.T, dir plan.Dir, m *memory, bf16 parsed, f form) {
	_, experts, parts := readManifest(t, dir, m, "experts/bf16")
	for e := range experts {
		block := at(t, dir, m, fmt.Sprintf("experts/bf16/blocks/L001/E%03d.bin", e))
		for _, p := range parts {
			projection, _, _ := strings.Cut(p.Name, ".")
			want := f.matrix(bf16, projection, 1, e, experts)
			if got := block[p.Offset : p.Offset+p.ByteLength]; len(want) == 0 || !bytes.Equal(got, flat(want)) {
				t.Errorf("expert %d: part %s %v differs", e, p.Name, p.Shape)
			}
		}
	}
	if len(parts) != 3 {
		t.Errorf("parts are %v", parts)
	}
}
