package transform

import (
	"slices"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/transform/quant"
)

// bf16Experts is the encoding with parts gate, up and down as BF16 [out, in] each, whatever the release has: fused projections are
// taken apart, transposed ones turned. A bias is BF16 too; tensors nobody knows keep their bytes.
func bf16Experts(in *input, x *release.Experts) ([]blockPart, any, error) {
	make := in.matrices[routed]
	if x == in.MTP {
		make = in.matrices[mtp]
	}
	parts, err := make()
	return slices.Clone(parts), nil, err
}

// bf16Parts makes the parts of bf16Experts.
func (in *input) bf16Parts(x *release.Experts) ([]blockPart, error) {
	if err := in.sums().exact(routed, mtp); err != nil {
		return nil, err
	}
	var parts []blockPart
	for k := 0; k < len(x.Parts); {
		end := k + 1
		for end < len(x.Parts) && x.Parts[end].Projection == x.Parts[k].Projection {
			end++
		}
		out, err := in.projection(x, x.Parts[k:end])
		if err != nil {
			return nil, err
		}
		parts = append(parts, out...)
		k = end
	}
	slices.SortStableFunc(parts, func(a, b blockPart) int { return rank(a.projection) - rank(b.projection) })
	return parts, nil
}

// rank orders projections in a block.
func rank(projection string) int {
	return slices.Index([]string{"gate", "up", "gate_up", "down"}, projection)
}

// projection makes the parts of one projection from its tensors, data first.
func (in *input) projection(x *release.Experts, ps []release.Part) ([]blockPart, error) {
	data := &ps[0]
	if err := in.notEmpty(x, ps); err != nil {
		return nil, err
	}
	ref, _ := data.Ref(0, 0, x.PerLayer)
	m, err := in.module(in.number(ref))
	if err != nil {
		return nil, err
	}
	var out []blockPart
	for k := range ps {
		p := &ps[k]
		ref, _ := p.Ref(0, 0, x.PerLayer)
		t := in.Tensor(ref)
		_, suffix := quant.Split(t.Name)
		switch {
		case k == 0:
			if err = in.checkMatches(x, data, m); err == nil && m.match == nil && !castable(t) {
				err = absent(t.Name, "dtype %s is no floating type and nothing beside the tensor says how it is quantized", t.DTypeName)
			}
			if err == nil {
				out, err = in.split(x, p, in.weights(x, p, m), bf16Suffix)
			}
		case m.match != nil && slices.Contains(m.match.Drop, suffix):
		case p.Suffix == "bias" && castable(t):
			var bias []blockPart
			bias, err = in.split(x, p, in.narrow(x, p), bf16Suffix)
			out = append(out, bias...)
		default:
			out = append(out, in.nativePart(x, p))
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// notEmpty refuses tensors without elements, which no matrix can be made of.
func (in *input) notEmpty(x *release.Experts, ps []release.Part) error {
	for k := range ps {
		if ps[k].Bytes == 0 {
			return absent(in.first(x, &ps[k]), "has shape %v for one expert, no elements", ps[k].Shape)
		}
	}
	return nil
}

// checkMatches refuses experts that dequantize to another shape than the first.
func (in *input) checkMatches(x *release.Experts, p *release.Part, first *module) error {
	for _, ref := range p.Refs {
		match, err := in.matchOf(in.number(ref))
		if err != nil {
			return err
		}
		if match == first.match {
			continue
		}
		if match == nil || first.match == nil || !slices.Equal(match.Shape, first.match.Shape) {
			return absent(in.Tensor(ref).Name, "does not dequantize to the shape of %s: blocks of different layouts have no manifest form", first.name)
		}
	}
	return nil
}

// matrix is one expert's tensor, rows x cols as it lies in the release (or in what the codec makes of it).
type matrix struct {
	rows, cols int64
	dtype      string
	width      int64 // bytes of an element
	transposed bool  // [in, out]
	// at is expert e of the i-th layer.
	at func(i, e int) window
}

// window is size bytes of a codec's output, or of input 0 if codec is nil.
type window struct {
	codec     plan.Codec
	inputs    []plan.Span
	off, size int64
}

// weights is the data of a projection, dequantized or narrowed where it must be.
func (in *input) weights(x *release.Experts, p *release.Part, m *module) matrix {
	if m.match == nil || m.match.Codec == nil {
		return in.narrow(x, p)
	}
	shape, transposed := m.match.Shape, p.Transposed
	if m.match.Rows != nil {
		shape, transposed = m.match.RowsShape, false
	}
	each := count(shape)
	if p.Fused {
		each /= int64(x.PerLayer)
	}
	cols := shape[len(shape)-1]
	return matrix{rows: each / cols, cols: cols, dtype: "BF16", width: 2, transposed: transposed, at: func(i, e int) window {
		ref, off := p.Ref(i, e, x.PerLayer)
		m, err := in.module(in.number(ref))
		if err != nil {
			panic("transform: recognised before: " + err.Error())
		}
		w := window{codec: m.match.Codec, inputs: in.inputs(m), off: off / p.Bytes * each * 2, size: each * 2}
		if m.match.Rows != nil {
			w.codec = m.match.Rows
		}
		w.codec = quant.Named(w.codec, m.output)
		return w
	}}
}

// castable says whether a tensor has floating elements, BF16 or others.
func castable(t release.Tensor) bool { return t.DTypeName == "BF16" || castOf(t) != nil }

// plain is an unquantized tensor as it stands.
func (in *input) plain(x *release.Experts, p *release.Part) matrix {
	cols := int64(1)
	if len(p.Shape) > 1 {
		cols = p.Shape[len(p.Shape)-1]
	}
	m := matrix{rows: count(p.Shape) / cols, cols: cols, dtype: p.DTypeName, width: int64(p.DType.Bits()) / 8, transposed: p.Transposed && len(p.Shape) > 1}
	m.at = func(i, e int) window {
		ref, off := p.Ref(i, e, x.PerLayer)
		return window{inputs: []plan.Span{span(in.Tensor(ref))}, off: off, size: p.Bytes}
	}
	return m
}

// narrow is an unquantized tensor rounded to BF16.
func (in *input) narrow(x *release.Experts, p *release.Part) matrix {
	m := in.plain(x, p)
	ref, _ := p.Ref(0, 0, x.PerLayer)
	if castOf(in.Tensor(ref)) == nil {
		return m
	}
	size := m.rows * m.cols * 2
	m.dtype, m.width = "BF16", 2
	m.at = func(i, e int) window {
		ref, off := p.Ref(i, e, x.PerLayer)
		t := in.Tensor(ref)
		return window{codec: castOf(t), inputs: []plan.Span{span(t)}, off: off / p.Bytes * size, size: size}
	}
	return m
}

// split makes the parts of a projection: itself, or its gate and up halves.
func (in *input) split(x *release.Experts, p *release.Part, m matrix, suffix func(string) string) ([]blockPart, error) {
	if p.Projection != "gate_up" {
		return []blockPart{m.part(p, p.Projection, suffix(p.Suffix), m.pick(0, 1))}, nil
	}
	if m.out()%2 != 0 {
		return nil, absent(in.first(x, p), "has %d rows of gate and up, which is odd", m.out())
	}
	gate, up := m.pick(0, 2), m.pick(m.out()/2, 2)
	if p.UpFirst {
		gate, up = up, gate
	}
	if p.Interleaved {
		gate, up = m.alternate(0), m.alternate(1)
	}
	return []blockPart{m.part(p, "gate", suffix(p.Suffix), gate), m.part(p, "up", suffix(p.Suffix), up)}, nil
}

// out is the number of output rows of the matrix.
func (m *matrix) out() int64 {
	if m.transposed {
		return m.cols
	}
	return m.rows
}

// picked is a matrix of output rows taken from another: see strided.
type picked struct{ base, rows, cols, rowStep, colStep int64 }

// pick takes one of n equal runs of output rows, from row first.
func (m *matrix) pick(first, n int64) picked {
	if m.transposed {
		return picked{first, m.cols / n, m.rows, 1, m.cols}
	}
	return picked{first * m.cols, m.rows / n, m.cols, m.cols, 1}
}

// alternate takes every second output row, from row first.
func (m *matrix) alternate(first int64) picked {
	if m.transposed {
		return picked{first, m.cols / 2, m.rows, 2, m.cols}
	}
	return picked{first * m.cols, m.rows / 2, m.cols, 2 * m.cols, 1}
}

// part is what pick takes of every expert, as a part of its block.
func (m *matrix) part(p *release.Part, projection, suffix string, at picked) blockPart {
	shape := []int64{at.rows, at.cols}
	if len(p.Shape) == 1 {
		shape = shape[:1]
	}
	return blockPart{
		projection: projection, suffix: suffix, tensor: p.Tensor, dtype: m.dtype, shape: shape, size: at.rows * at.cols * m.width, from: p,
		pieces: func(i, e int) []plan.Piece { return []plan.Piece{m.at(i, e).piece(at, m.width)} },
	}
}

// bf16Suffix names a dequantized part: "weight", or "bias".
func bf16Suffix(suffix string) string {
	if suffix == "bias" {
		return suffix
	}
	return "weight"
}

// shortRow is the number of bytes below which rows are gathered through a codec, as one range, rather than row by row.
const shortRow = 1024

// piece is the picked elements of the window, which have width bytes.
func (w window) piece(at picked, width int64) plan.Piece {
	base, row := w.off+at.base*width, at.cols*width
	switch {
	case at.colStep == 1 && at.rowStep == at.cols && w.codec == nil:
		return plan.Copy{Span: w.inputs[0].Sub(base, at.rows*row)}
	case at.colStep == 1 && at.rowStep == at.cols:
		return plan.Decode{Codec: w.codec, Inputs: w.inputs, Off: base, Size: at.rows * row}
	case at.colStep == 1 && w.codec == nil && row >= shortRow:
		return plan.Rows{First: w.inputs[0].Sub(base, row), Stride: at.rowStep * width, Count: at.rows}
	}
	if w.codec == nil {
		w = window{raw{w.size}, []plan.Span{w.inputs[0].Sub(w.off, w.size)}, 0, w.size}
	}
	c := strided{w.codec, width, w.off/width + at.base, at.rows, at.cols, at.rowStep, at.colStep}
	return plan.Decode{Codec: c, Inputs: w.inputs, Size: at.rows * row}
}
