package transform

import (
	"fmt"
	"slices"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// The views split/ and fused/ show every expert tensor of a release in the other form: one tensor per expert and projection, or one per
// layer with the experts on axis 0. Names are those of transformers.

// regrouped is one class of experts as parts gate, up and down of [out, in], with what the other form needs.
type regrouped struct {
	x     *release.Experts
	parts []blockPart
	fuse  bool
}

// splitDir is split/ or split-bf16/, fusedDir fused/ or fused-bf16/.
func splitDir(in *input, bf16 bool) (plan.Dir, cost, error) { return regroupDir(in, false, bf16) }
func fusedDir(in *input, bf16 bool) (plan.Dir, cost, error) { return regroupDir(in, true, bf16) }

func regroupDir(in *input, fuse, bf16 bool) (plan.Dir, cost, error) {
	if err := in.laidOut(); err != nil {
		return nil, cost{}, err
	}
	if in.Experts.Parts[0].Fused == fuse {
		return nil, cost{}, absent("", "the experts of this release have that form already")
	}
	s := in.sums()
	c := cost{total(s.native), total(s.native)}
	rest, config := mapping(in.residents), (func([]byte) ([]byte, error))(nil)
	if bf16 {
		if err := s.exact(resident, routed, mtp); err != nil {
			return nil, c, err
		}
		if err := in.checkConfig(); err != nil {
			return nil, c, err
		}
		c.shown = total(s.bf16)
		rest, config = in.bf16(false), editConfig
	}
	classes := map[class]*regrouped{}
	for _, cl := range []class{routed, mtp} {
		x := in.experts(cl)
		if x == nil {
			continue
		}
		g, err := in.regroup(x, fuse, bf16)
		if err != nil {
			return nil, c, err
		}
		classes[cl] = g
	}
	return newModelDir(in, in.regrouping(classes, rest), config), c, nil
}

// regrouping is the mapping of the view: what is no expert as rest has it, and the experts regrouped.
func (in *input) regrouping(classes map[class]*regrouped, rest mapping) mapping {
	return func(i int32, emit func(tensor)) error {
		w := in.where[i]
		g := classes[w.class]
		if g == nil {
			return rest(i, emit)
		}
		p := &g.x.Parts[w.part]
		for k := range g.parts {
			if g.parts[k].from != p {
				continue
			}
			for _, t := range g.tensors(in, k, int(w.ref)) {
				if _, ok := in.Lookup(t.Name); ok {
					return absent(t.Name, "is a tensor of the release already")
				}
				emit(t)
			}
		}
		return nil
	}
}

// regroup makes the parts.
func (in *input) regroup(x *release.Experts, fuse, bf16 bool) (*regrouped, error) {
	g := &regrouped{x: x, fuse: fuse}
	var err error
	if bf16 {
		g.parts, _, err = bf16Experts(in, x)
	} else {
		g.parts, err = in.nativeMatrices(x, fuse)
	}
	if err != nil {
		return nil, err
	}
	for _, p := range g.parts {
		if !slices.Contains([]string{"gate", "up", "down"}, p.projection) {
			return nil, absent(in.first(x, p.from), "belongs to gate and up together and cannot be taken apart")
		}
		if fuse && p.projection == "up" && g.partner(&p, "gate") == nil && g.has("gate") {
			return nil, absent(in.first(x, p.from), "has no counterpart in gate to stand beside")
		}
	}
	return g, nil
}

// partner is the part of another projection with the same suffix.
func (g *regrouped) partner(p *blockPart, projection string) *blockPart {
	for k := range g.parts {
		if g.parts[k].projection == projection && g.parts[k].suffix == p.suffix {
			return &g.parts[k]
		}
	}
	return nil
}

func (g *regrouped) has(projection string) bool {
	return slices.ContainsFunc(g.parts, func(p blockPart) bool { return p.projection == projection })
}

// tensors are those that belong to ref number r of the source of part k.
func (g *regrouped) tensors(in *input, k, r int) []tensor {
	p := &g.parts[k]
	if !g.fuse {
		var out []tensor
		for e := range g.x.PerLayer {
			out = append(out, g.one(in, p, r, e))
		}
		return out
	}
	i, e := r/g.x.PerLayer, r%g.x.PerLayer
	if e != 0 || p.projection == "up" && g.has("gate") {
		return nil
	}
	return []tensor{g.stack(in, p, i)}
}

// one is the tensor of one expert.
func (g *regrouped) one(in *input, p *blockPart, i, e int) tensor {
	name := fmt.Sprintf("%s.%d.%s_proj.%s", g.base(in, p, i), e, p.projection, splitSuffix(p.suffix))
	return shown(name, p.dtype, p.shape, p.size, func() []plan.Piece { return p.pieces(i, e) })
}

// stack is the tensor of all experts of a layer: gate rows, then up rows, where both are there.
func (g *regrouped) stack(in *input, p *blockPart, i int) tensor {
	halves := []*blockPart{p}
	projection := p.projection
	if up := g.partner(p, "up"); p.projection == "gate" && up != nil {
		halves = append(halves, up)
		projection = "gate_up"
	}
	shape := append([]int64{int64(g.x.PerLayer)}, p.shape...)
	size := p.size
	for _, h := range halves[1:] {
		shape[1] += h.shape[0]
		size += h.size
	}
	name := fmt.Sprintf("%s.%s_proj%s", g.base(in, p, i), projection, fusedSuffix(p.suffix))
	return shown(name, p.dtype, shape, size*int64(g.x.PerLayer), func() []plan.Piece {
		var out []plan.Piece
		for e := range g.x.PerLayer {
			for _, h := range halves {
				out = append(out, h.pieces(i, e)...)
			}
		}
		return out
	})
}

// fusedSuffix is how transformers spells a suffix of a stacked parameter: none for the weights, _bias, _scale_inv.
func fusedSuffix(suffix string) string {
	if suffix = strings.TrimPrefix(suffix, "weight"); suffix != "" && suffix[0] != '_' {
		return "_" + suffix
	}
	return suffix
}

// splitSuffix is how transformers spells a suffix of an expert's own parameter: the _scale_inv of a stacked one is weight_scale_inv.
func splitSuffix(suffix string) string {
	if suffix == "scale_inv" {
		return "weight_scale_inv"
	}
	return suffix
}

// shown is a tensor of a view by its parts.
func shown(name, dtype string, shape []int64, size int64, pieces func() []plan.Piece) tensor {
	d, _ := safetensors.ParseDType(dtype)
	return tensor{Tensor: safetensors.Tensor{Name: name, DType: d, DTypeName: dtype, Shape: shape}, size: size, pieces: pieces}
}

// base is the name of the experts of the i-th layer, up to and with "experts".
func (g *regrouped) base(in *input, p *blockPart, i int) string {
	module := g.source(in, p, i, 0)
	if g.fuse {
		module, _ = lastCut(module) // the projection
		module, _ = lastCut(module) // the expert
		return module
	}
	module, _ = lastCut(module)
	head, last := lastCut(module)
	switch last {
	case "experts":
		return module
	case "switch_mlp", "switch_glu":
		return strings.TrimSuffix(head, ".experts") + ".experts"
	}
	return module + ".experts"
}

// source is the name of the module that holds the part's data.
func (g *regrouped) source(in *input, p *blockPart, i, e int) string {
	ref, _ := p.from.Ref(i, e, g.x.PerLayer)
	module, _ := quant.Split(in.Tensor(ref).Name)
	return module
}

// lastCut takes the last component off a name.
func lastCut(name string) (head, last string) {
	k := strings.LastIndexByte(name, '.')
	return name[:max(k, 0)], name[k+1:]
}

// nativeMatrices are parts gate, up and down of [out, in] in the release's own dtypes. Only what a loader knows under both forms'
// names can be regrouped without computing: plain weights and biases, FP8 with a block scale where blocks do not straddle gate and up,
// and for taking apart MLX's affine triples.
func (in *input) nativeMatrices(x *release.Experts, fuse bool) ([]blockPart, error) {
	if err := in.notEmpty(x, x.Parts); err != nil {
		return nil, err
	}
	var out []blockPart
	for k := range x.Parts {
		p := &x.Parts[k]
		ref, _ := p.Ref(0, 0, x.PerLayer)
		m, err := in.module(in.number(ref))
		if err != nil {
			return nil, err
		}
		if err := in.regroupable(x, p, m, fuse); err != nil {
			return nil, err
		}
		parts, err := in.split(x, p, in.plain(x, p), func(s string) string { return s })
		if err != nil {
			return nil, err
		}
		out = append(out, parts...)
	}
	return out, nil
}

// regroupable refuses parts that have no name, or no exact form, on the other side.
func (in *input) regroupable(x *release.Experts, p *release.Part, m *module, fuse bool) error {
	name := in.first(x, p)
	if p.Shared || p.DType.Bits() < 8 {
		return absent(name, "cannot be cut by experts")
	}
	if m.match == nil {
		if p.Suffix != "weight" && p.Suffix != "bias" {
			return absent(name, "no loader knows it in the other form")
		}
		return nil
	}
	switch {
	case p.DTypeName == "F8_E4M3" && p.Suffix == "weight" && len(m.members) == 2:
		return nil
	case p.Suffix == "weight_scale_inv" || p.Suffix == "scale_inv":
		return in.scaleFits(x, p, m, name)
	case !fuse && !p.Transposed && p.Projection != "gate_up" && slices.Contains([]string{"weight", "scales", "biases"}, p.Suffix):
		return nil
	}
	return absent(name, "%s: no loader knows it in the other form; the view of the same name with -bf16 computes it", m.match.Format)
}

// scaleFits refuses block scales that would not be exact after joining or taking apart gate and up: where a block straddles them.
func (in *input) scaleFits(x *release.Experts, p *release.Part, m *module, name string) error {
	block := int64(in.quantConfig.Block[0])
	if block <= 0 {
		return absent(name, "the configuration does not say the block size of the scales")
	}
	if len(p.Shape) != 2 {
		return absent(name, "has shape %v, which is no grid of blocks", p.Shape)
	}
	if p.Transposed {
		return absent(name, "scales weights of [in, out]; no loader knows block scales of these in the other form")
	}
	if p.Interleaved && block > 1 {
		return absent(name, "scales blocks of %d rows in which gate and up alternate", block)
	}
	rows := m.match.Shape[len(m.match.Shape)-2]
	if p.Projection == "gate_up" {
		rows /= 2
	}
	if p.Projection != "down" && rows%block != 0 {
		return absent(name, "%d rows of gate and of up are no multiple of the %d rows of a block, so a block would straddle them", rows, block)
	}
	return nil
}
