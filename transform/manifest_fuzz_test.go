package transform

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"weightfs/fs/plan"
)

// checkedManifest is what a reader of blocks takes from manifest.json.
type checkedManifest struct {
	File              string
	BlockByteLength   int64
	BlockIndexFormula string
	Layers            []int
	ExpertsPerLayer   int64
	Parts             []struct {
		Name, DType, Tensor string
		Offset, ByteLength  int64
		Shape               []int64
	}
	PlanDigest string
	MTP        *checkedManifest
}

// check says whether the blocks of a manifest can be read by it: its parts tile the block in order, on boundaries of 256 bytes, the file is as
// long as the formula says, and in native blocks each part's tensor is there for every expert.
func (c *checkedManifest) check(tensors map[string]bool, size int64, native bool) error {
	if n := int64(len(c.Layers)) * c.ExpertsPerLayer; n <= 0 || n*c.BlockByteLength != size || c.BlockByteLength%4096 != 0 || len(c.PlanDigest) != 64 {
		return fmt.Errorf("%d blocks of %d bytes, a file of %d, digest %q", n, c.BlockByteLength, size, c.PlanDigest)
	}
	end := int64(0)
	for _, p := range c.Parts {
		if p.Offset < end || p.Offset%256 != 0 || p.ByteLength < 0 || p.Offset+p.ByteLength > c.BlockByteLength || p.Name == "" {
			return fmt.Errorf("part %q [%d, +%d) after %d in a block of %d", p.Name, p.Offset, p.ByteLength, end, c.BlockByteLength)
		}
		end = p.Offset + p.ByteLength
		for _, layer := range c.Layers {
			for e := range c.ExpertsPerLayer {
				name := strings.ReplaceAll(strings.ReplaceAll(p.Tensor, "{layer}", strconv.Itoa(layer)), "{expert}", strconv.FormatInt(e, 10))
				if native && !tensors[name] {
					return fmt.Errorf("part %q is of %q, which the release does not have", p.Name, name)
				}
			}
		}
	}
	return nil
}

// FuzzManifest makes the blocks of any tensors, each line of which is a name, a dtype and a shape. Every manifest there is can be parsed,
// is as long as its entry says, and says where the parts of every block are.
func FuzzManifest(f *testing.F) {
	const per, fused = "model.layers.%d.mlp.experts.%d.%s_proj.weight %s %s\n", "model.layers.%d.mlp.experts.%s BF16 %s\n"
	var a, b strings.Builder
	for layer := range 2 {
		fmt.Fprintf(&a, "model.layers.%d.mlp.gate.weight BF16 2 64\n", layer)
		fmt.Fprintf(&b, "model.layers.%d.mlp.gate.weight BF16 2 64\n", layer)
		for e := range 2 {
			fmt.Fprintf(&a, per+per+per, layer, e, "gate", "BF16", "32 64", layer, e, "up", "BF16", "32 64", layer, e, "down", "BF16", "64 32")
		}
		fmt.Fprintf(&b, fused+fused, layer, "gate_up_proj", "2 64 64", layer, "down_proj", "2 32 64")
	}
	f.Add(a.String(), `{"hidden_size": 64}`)
	f.Add(b.String(), `{"hidden_size": 64, "num_experts": 2}`)
	f.Add(strings.ReplaceAll(a.String(), "layers.1.", "layers.1<b>\"{layer}."), "")
	f.Add(strings.ReplaceAll(a.String(), "BF16", "F8_E4M3")+"model.layers.0.mlp.experts.0.up_proj.weight_scale_inv F32 1 1", `{"quantization_config":{"quant_method":"fp8"}}`)
	f.Fuzz(func(t *testing.T, text, config string) {
		lines, tensors := smallTensors(text)
		if len(lines) == 0 {
			return
		}
		m := handMade(config, lines...)
		dir := m.tree()
		list, err := plan.Walk(t.Context(), dir, "experts")
		if err != nil {
			return // it is no release, or has no experts
		}
		nodes, err := list.Dir.List(t.Context())
		if err != nil {
			return
		}
		for _, n := range nodes {
			at := "experts/" + n.Name + "/"
			node, err := plan.Walk(t.Context(), dir, at+"manifest.json")
			if n.Dir == nil || err != nil {
				continue
			}
			raw := content(t, m, file{at + "manifest.json", node})
			var c checkedManifest
			if err := json.Unmarshal(raw, &c); err != nil {
				t.Fatalf("%s: %v", at, err)
			}
			for c := &c; c != nil; c = c.MTP {
				blocks, err := plan.Walk(t.Context(), dir, at+c.File)
				if err != nil {
					t.Fatal(err)
				}
				if err := c.check(tensors, blocks.Size, n.Name == "native"); err != nil {
					t.Errorf("%s: %v", at, err)
				}
			}
		}
	})
}

// smallTensors is the lines of text that are tensors of at most 64 KiB, no name twice, at most 100.
func smallTensors(text string) (lines []string, names map[string]bool) {
	names = map[string]bool{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 || len(words) > 6 || widths[words[1]] == 0 || names[words[0]] || len(lines) == 100 {
			continue
		}
		bytes := int64(widths[words[1]])
		for _, w := range words[2:] {
			n, err := strconv.ParseUint(w, 10, 12)
			if err != nil || bytes*int64(n) > 64<<10 {
				bytes = -1
				break
			}
			bytes *= int64(n)
		}
		if bytes >= 0 {
			lines, names[words[0]] = append(lines, line), true
		}
	}
	return lines, names
}
