package transform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"weightfs/fs/plan"
)

// oddForms are small releases in the forms that experts and formats have, each a config and lines as of handMade.
func oddForms() map[string][]string {
	apart := func(weight string, sides ...string) (lines []string) {
		for e := range 2 {
			for _, p := range []string{"gate", "up", "down"} {
				name := fmt.Sprintf("model.layers.0.mlp.experts.%d.%s_proj", e, p)
				shape := " 32 64"
				if p == "down" {
					shape = " 64 32"
				}
				if weight != "" {
					lines = append(lines, name+".weight "+weight+shape)
				}
				for _, s := range sides {
					lines = append(lines, name+s)
				}
			}
		}
		return append(lines, "model.layers.0.mlp.gate.weight BF16 2 64", "model.embed_tokens.weight BF16 16 64")
	}
	const m = "model.layers.0.mlp.experts."
	fused := func(lines ...string) []string {
		return append(lines, "model.layers.0.mlp.router.weight BF16 2 64", "model.norm.weight BF16 64", "lm_head.weight F32 16 64")
	}
	return map[string][]string{
		`{"hidden_size":64}`:                                           apart("BF16"),
		`{"hidden_size":64,"num_experts":2}`:                           fused(m+"gate_up_proj BF16 2 64 64", m+"gate_up_proj_bias BF16 2 64", m+"down_proj BF16 2 64 32", m+"down_proj_bias BF16 2 64"),
		`{"hidden_size":64,"quantization":{"bits":4,"group_size":32}}`: fused("model.layers.0.mlp.switch_mlp.up_proj.weight U32 2 32 8", "model.layers.0.mlp.switch_mlp.up_proj.scales BF16 2 32 2", "model.layers.0.mlp.switch_mlp.up_proj.biases BF16 2 32 2", "model.layers.0.mlp.switch_mlp.gate_proj.weight U32 2 32 8", "model.layers.0.mlp.switch_mlp.gate_proj.scales BF16 2 32 2", "model.layers.0.mlp.switch_mlp.gate_proj.biases BF16 2 32 2", "model.layers.0.mlp.switch_mlp.down_proj.weight U32 2 64 4", "model.layers.0.mlp.switch_mlp.down_proj.scales BF16 2 64 1", "model.layers.0.mlp.switch_mlp.down_proj.biases BF16 2 64 1"),
		`{"hidden_size":64,"model_type":"gpt_oss","quantization_config":{"quant_method":"mxfp4"}}`:                                 fused(m+"gate_up_proj_blocks U8 2 64 2 16", m+"gate_up_proj_scales U8 2 64 2", m+"gate_up_proj_bias BF16 2 64", m+"down_proj_blocks U8 2 64 1 16", m+"down_proj_scales U8 2 64 1", m+"down_proj_bias BF16 2 64"),
		`{"hidden_size":64,"quantization_config":{"quant_method":"fp8","weight_block_size":[16,16]}}`:                              apart("F8_E4M3", ".weight_scale_inv F32 2 2", ".bias BF16 32"),
		`{"hidden_size":64,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32}}`:                                apart("", ".qweight I32 8 32", ".qzeros I32 2 4", ".scales F16 2 32"),
		`{"hidden_size":64,"quantization_config":{"quant_method":"compressed-tensors","format":"mxfp4-pack-quantized"},"fused":1}`: fused(m+"gate_up_proj F8_E4M3 2 64 64", m+"gate_up_proj_scale_inv F32 2 4 4", m+"down_proj F8_E4M3 2 64 32", m+"down_proj_scale_inv F32 2 4 2"),
	}
}

// spoil changes a few tensors: another length of an axis, an axis more or less, another dtype or name, or no tensor at all.
func spoil(t *rapid.T, lines []string) []string {
	lines = slices.Clone(lines)
	for range rapid.IntRange(0, 3).Draw(t, "changes") {
		i := rapid.IntRange(0, len(lines)-1).Draw(t, "tensor")
		words := strings.Fields(lines[i])
		axis := rapid.IntRange(2, len(words)).Draw(t, "axis")
		length := strconv.Itoa(rapid.SampledFrom([]int{0, 1, 2, 3, 16, 32, 33, 64, 128}).Draw(t, "length"))
		switch rapid.IntRange(0, 5).Draw(t, "change") {
		case 0:
			words = slices.Insert(words, axis, length)
		case 1:
			words = append(words[:min(axis, len(words)-1)], words[min(axis+1, len(words)):]...)
			words = words[:max(2, len(words))]
		case 2:
			words[1] = rapid.SampledFrom([]string{"BF16", "F16", "F32", "F64", "I64", "I32", "U32", "U8", "I8", "F8_E4M3", "F8_E8M0", "BOOL", "F9_E9"}).Draw(t, "dtype")
		case 3:
			words[0] += rapid.SampledFrom([]string{".bias", "_bias", ".weight", ".weight_scale", "_scale", ".x"}).Draw(t, "suffix")
		case 4:
			if len(lines) > 1 {
				lines = slices.Delete(lines, i, i+1)
			}
			continue
		default:
			if axis < len(words) {
				words[axis] = length
			}
		}
		lines[i] = strings.Join(words, " ")
	}
	slices.Sort(lines)
	return slices.CompactFunc(lines, func(a, b string) bool { return strings.Fields(a)[0] == strings.Fields(b)[0] })
}

// readTree opens and reads every file of a tree. Files whose content cannot be made fail, all others have the length that their directory says.
func readTree(ctx context.Context, r *plan.Reader, n plan.Node, path string) error {
	if n.Dir == nil {
		p, err := n.Open(ctx)
		if err != nil {
			return fmt.Errorf("open %s: %w", path, err)
		}
		if p.Size != n.Size {
			return fmt.Errorf("%s has %d bytes, its entry says %d", path, p.Size, n.Size)
		}
		if _, err := r.ReadAt(ctx, p, make([]byte, p.Size), 0); err != nil && err != io.EOF && !errors.Is(err, plan.ErrBadInput) {
			return fmt.Errorf("read %s: %w", path, err)
		}
		return nil
	}
	nodes, err := n.Dir.List(ctx)
	if err != nil {
		return fmt.Errorf("list %s: %w", path, err)
	}
	for _, x := range nodes {
		if err := readTree(ctx, r, x, path+"/"+x.Name); err != nil {
			return err
		}
	}
	return nil
}

// TestOddTensors: whatever shapes, dtypes and names the tensors of a release have, every file that is listed can be read.
func TestOddTensors(t *testing.T) {
	forms := oddForms()
	for config, lines := range forms {
		dir := handMade(config, lines...).tree()
		for _, view := range []string{"bf16", "experts/bf16", "ranks/2/1", "layers"} {
			if _, err := plan.Walk(t.Context(), dir, view); err != nil {
				t.Fatalf("%s, unspoiled: %v", config, err)
			}
		}
	}
	configs := slices.Sorted(maps.Keys(forms))
	rapid.Check(t, func(t *rapid.T) {
		config := rapid.SampledFrom(configs).Draw(t, "config")
		m := handMade(config, spoil(t, forms[config])...)
		if err := readTree(context.Background(), plan.NewReader(m, 1<<20), plan.Folder("", m.tree()), ""); err != nil {
			t.Fatal(err)
		}
	})
}
