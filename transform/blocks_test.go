package transform

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"weightfs/internal/testrel"
)

// expertNames says, per small release, where the experts are: what a test reads out of the names by hand.
type expertNames struct {
	release     string
	layers      []int
	experts     int
	prefix      string            // up to the projection, with {layer} and {expert}
	native      [][2]string       // part name, rest of the tensor's name
	fused       bool              // all experts of a layer in one tensor
	inOut       bool              // fused tensors are [E, in, out]
	projections map[string]string // gate, up, down to the name of the dequantized tensor (per-expert releases)
	mtp         string            // the prefix of experts of multi-token prediction, of one layer 0
}

var smallExperts = []expertNames{
	{release: "qwen-fp8", layers: []int{0, 1, 2}, experts: 12, prefix: "model.layers.{layer}.mlp.experts.{expert}.", mtp: "mtp.layers.{layer}.mlp.experts.{expert}.",
		native: [][2]string{{"gate.weight", "gate_proj.weight"}, {"gate.weight_scale_inv", "gate_proj.weight_scale_inv"}, {"up.weight", "up_proj.weight"},
			{"up.weight_scale_inv", "up_proj.weight_scale_inv"}, {"down.weight", "down_proj.weight"}, {"down.weight_scale_inv", "down_proj.weight_scale_inv"}},
		projections: map[string]string{"gate": "gate_proj.weight", "up": "up_proj.weight", "down": "down_proj.weight"}},
	{release: "kimi-mxfp4", layers: []int{1, 2, 3}, experts: 12, prefix: "language_model.model.layers.{layer}.block_sparse_moe.experts.{expert}.",
		native: [][2]string{{"gate.weight_packed", "w1.weight_packed"}, {"gate.weight_scale", "w1.weight_scale"}, {"up.weight_packed", "w3.weight_packed"},
			{"up.weight_scale", "w3.weight_scale"}, {"down.weight_packed", "w2.weight_packed"}, {"down.weight_scale", "w2.weight_scale"}},
		projections: map[string]string{"gate": "w1.weight", "up": "w3.weight", "down": "w2.weight"}},
	{release: "mixtral-single", layers: []int{0, 1}, experts: 8, prefix: "model.layers.{layer}.block_sparse_moe.experts.{expert}.",
		native:      [][2]string{{"gate.weight", "w1.weight"}, {"up.weight", "w3.weight"}, {"down.weight", "w2.weight"}},
		projections: map[string]string{"gate": "w1.weight", "up": "w3.weight", "down": "w2.weight"}},
	{release: "qwen-fused", layers: []int{0, 1, 2}, experts: 6, prefix: "model.language_model.layers.{layer}.mlp.experts.", mtp: "mtp.layers.{layer}.mlp.experts.", fused: true,
		native: [][2]string{{"gate_up.weight", "gate_up_proj"}, {"down.weight", "down_proj"}}},
	{release: "vl-fused", layers: []int{0, 1, 2}, experts: 6, prefix: "model.language_model.layers.{layer}.mlp.experts.", fused: true, inOut: true,
		native: [][2]string{{"gate_up.weight", "gate_up_proj"}, {"down.weight", "down_proj"}}},
}

func expand(name string, layer, expert int) string {
	return strings.NewReplacer("{layer}", fmt.Sprint(layer), "{expert}", fmt.Sprint(expert)).Replace(name)
}

// dumbPart is one part of a block: name, dtype, shape, bytes.
type dumbPart struct {
	name, tensor, dtype string
	shape               []int64
	data                []byte
}

// nativeParts are the parts of one expert with the release's bytes.
func (x *expertNames) nativeParts(r *testrel.Release, prefix string, layer, expert int) []dumbPart {
	var out []dumbPart
	for _, p := range x.native {
		t := r.Tensor(expand(prefix+p[1], layer, expert))
		d := dumbPart{p[0], prefix + p[1], t.DType.String(), t.Shape, t.Bytes()}
		if x.fused {
			n := len(d.data) / x.experts
			d.shape, d.data = d.shape[1:], d.data[expert*n:(expert+1)*n]
		}
		out = append(out, d)
	}
	return out
}

// bf16Parts are gate, up and down of one expert as [out, in].
func (x *expertNames) bf16Parts(r *testrel.Release, prefix string, layer, expert int) []dumbPart {
	var out []dumbPart
	for k, p := range []string{"gate", "up", "down"} {
		d := dumbPart{name: p + ".weight", dtype: "BF16"}
		if !x.fused {
			v := truthOf(r, expand(prefix+x.projections[p], layer, expert))
			d.shape, d.data = v.shape, v.data
			d.tensor = prefix + strings.TrimSuffix(x.projections[p], ".weight") + strings.TrimPrefix(x.native[2*k%len(x.native)][0], p)
			if len(x.native) == 3 {
				d.tensor = prefix + x.projections[p]
			}
		} else {
			d.tensor = prefix + map[string]string{"gate": "gate_up_proj", "up": "gate_up_proj", "down": "down_proj"}[p]
			d.shape, d.data = x.cut(r.Tensor(expand(d.tensor, layer, 0)), p, expert)
		}
		out = append(out, d)
	}
	return out
}

// cut takes one projection of one expert out of a fused tensor, element by element.
func (x *expertNames) cut(t *testrel.Tensor, p string, expert int) ([]int64, []byte) {
	all := t.Bytes()
	a, b := int(t.Shape[1]), int(t.Shape[2])
	at := func(i, j int) []byte { k := 2 * ((expert*a+i)*b + j); return all[k : k+2] }
	out, in := a, b
	if x.inOut {
		out, in = b, a
	}
	first, last := 0, out
	switch p {
	case "gate":
		last = out / 2
	case "up":
		first = out / 2
	}
	var data []byte
	for o := first; o < last; o++ {
		for i := range in {
			if x.inOut {
				data = append(data, at(i, o)...)
			} else {
				data = append(data, at(o, i)...)
			}
		}
	}
	return []int64{int64(last - first), int64(in)}, data
}

// dumbBlock puts parts on multiples of 256 and pads to 4096.
func dumbBlock(parts []dumbPart) (block []byte, offsets []int) {
	for _, p := range parts {
		for len(block)%256 != 0 {
			block = append(block, 0)
		}
		offsets = append(offsets, len(block))
		block = append(block, p.data...)
	}
	for len(block)%4096 != 0 {
		block = append(block, 0)
	}
	return block, offsets
}

func TestBlocks(t *testing.T) {
	for _, x := range smallExperts {
		r := byName(t, x.release)
		dir, m := open(r)
		for view, parts := range map[string]func(r *testrel.Release, prefix string, layer, expert int) []dumbPart{
			"experts/native": x.nativeParts, "experts/bf16": x.bf16Parts,
		} {
			t.Run(x.release+"/"+view, func(t *testing.T) {
				var all []byte
				for _, l := range x.layers {
					for e := range x.experts {
						block, _ := dumbBlock(parts(r, x.prefix, l, e))
						one := at(t, dir, m, fmt.Sprintf("%s/blocks/L%03d/E%03d.bin", view, l, e))
						if !bytes.Equal(one, block) {
							t.Fatalf("layer %d expert %d: %d bytes, want %d; first difference at %d", l, e, len(one), len(block), firstDiff(one, block))
						}
						all = append(all, block...)
					}
				}
				if !bytes.Equal(at(t, dir, m, view+"/expert_blocks.bin"), all) {
					t.Error("expert_blocks.bin is not the blocks one after the other")
				}
				if x.mtp != "" {
					var all []byte
					for e := range x.experts {
						block, _ := dumbBlock(parts(r, x.mtp, 0, e))
						all = append(all, block...)
					}
					if !bytes.Equal(at(t, dir, m, view+"/mtp_blocks.bin"), all) {
						t.Error("mtp_blocks.bin differs")
					}
				}
				checkManifest(t, at(t, dir, m, view+"/manifest.json"), &x, parts(r, x.prefix, x.layers[0], 0), m)
			})
		}
	}
}

// checkManifest reads a manifest as a stranger would.
func checkManifest(t *testing.T, text []byte, x *expertNames, parts []dumbPart, m *memory) {
	t.Helper()
	type class struct {
		BlockByteLength   int
		BlockIndexFormula string
		Layers            []int
		ExpertsPerLayer   int
		Parts             []struct {
			Name, DType, Tensor string
			Offset, ByteLength  int
			Shape               []int64
		}
		PlanDigest string
	}
	var got struct {
		class
		MTP    *class
		Source struct {
			Repository, Commit string
			Headers            map[string]string
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	block, offsets := dumbBlock(parts)
	if got.BlockByteLength != len(block) || got.ExpertsPerLayer != x.experts || fmt.Sprint(got.Layers) != fmt.Sprint(x.layers) ||
		got.BlockIndexFormula != "layerIndex * expertsPerLayer + expert" || len(got.Parts) != len(parts) || len(got.PlanDigest) != 64 {
		t.Errorf("manifest says %+v", got.class)
	}
	for k, p := range got.Parts {
		want := parts[k]
		if p.Name != want.name || p.DType != want.dtype || p.Tensor != want.tensor || p.Offset != offsets[k] || p.ByteLength != len(want.data) || fmt.Sprint(p.Shape) != fmt.Sprint(want.shape) {
			t.Errorf("part %d is %+v, want %s %s %v of %s at %d", k, p, want.name, want.dtype, want.shape, want.tensor, offsets[k])
		}
	}
	if (got.MTP != nil) != (x.mtp != "") {
		t.Errorf("mtp: %+v", got.MTP)
	}
	if got.Source.Repository != "hf://demo/"+x.release || len(got.Source.Commit) != 40 || len(got.Source.Headers) == 0 {
		t.Errorf("source: %+v", got.Source)
	}
	for path, sum := range got.Source.Headers {
		f := m.file(path)
		head := make([]byte, 8)
		f.ReadAt(head, 0)
		head = make([]byte, 8+binary.LittleEndian.Uint64(head))
		f.ReadAt(head, 0)
		if want := fmt.Sprintf("%x", sha256.Sum256(head)); sum != want {
			t.Errorf("header of %s: %s, want %s", path, sum, want)
		}
	}
}

func byName(t *testing.T, name string) *testrel.Release {
	for _, r := range testrel.Small() {
		if r.Name == name {
			return r
		}
	}
	t.Fatalf("no release %s", name)
	return nil
}
