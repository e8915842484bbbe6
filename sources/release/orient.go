package release

import (
	"fmt"
	"slices"
	"strconv"
)

// orient sets Transposed and Interleaved of the parts, and the widths where shapes say them. H is the width that the experts read and
// write, I their inner width.
func (b *builder) orient(x *Experts) error {
	data := map[string]*Part{}
	biased := false
	for i := range x.Parts {
		p := &x.Parts[i]
		biased = biased || (p.Projection == gateUp && p.Suffix == "bias")
		if !isData(p.Suffix) {
			continue
		}
		if q := data[p.Projection]; q != nil {
			return fmt.Errorf("routed experts %s have two tensors of weights for %s: %s and %s", b.class, p.Projection, quoted(q.Tensor), quoted(p.Tensor))
		}
		if err := p.axes(); err != nil {
			return err
		}
		data[p.Projection] = p
	}
	if err := b.projections(data); err != nil {
		return err
	}
	transposed, err := b.transposed(x, data)
	if err != nil {
		return err
	}
	alternate, err := b.alternate(biased)
	if err != nil {
		return err
	}
	for i := range x.Parts {
		p := &x.Parts[i]
		p.Interleaved = alternate && p.Projection == gateUp
		p.Transposed = transposed[p.Projection] && len(p.Shape) >= 2
	}
	x.widths(data)
	return nil
}

// axes refuses weights of one expert that are no matrix, or matrix of blocks, whose first axes would be taken for out and in. Formats that
// store an expert's own tensor in tiles (EXL3, AQLM) have more axes, which say nothing.
func (p *Part) axes() error {
	n := len(p.Shape)
	ok := n == 2
	if p.Suffix != "weight" {
		ok = n > 0 && (n < 3 || !p.Fused || n == 3 && p.Suffix == "blocks")
	}
	if ok {
		return nil
	}
	whole := ""
	if p.Fused {
		whole = ": a fused tensor is [experts, out, in] or [experts, in, out]"
	}
	return fmt.Errorf("tensor %s is %s%v for each expert, expected [out, in] or [in, out]%s", quoted(p.Tensor), quoted(p.DTypeName), p.Shape, whole)
}

// projections checks that the experts have one of the three sets of projections, and weights for each.
func (b *builder) projections(data map[string]*Part) error {
	for _, col := range b.class.sortedColumns() {
		if data[col.proj.projection] == nil {
			return fmt.Errorf("routed experts %s have %s but no weights of that projection", b.class, quoted(col.template))
		}
	}
	ok := data[down] != nil
	if data[gateUp] != nil {
		ok = ok && data[gate] == nil && data[up] == nil
	} else {
		ok = ok && data[up] != nil // without a gate: Nemotron
	}
	if ok {
		return nil
	}
	var have []string
	for _, p := range []string{gate, gateUp, up, down} {
		if data[p] != nil {
			have = append(have, p)
		}
	}
	return fmt.Errorf("routed experts %s have the projections %v; expected gate, up and down, or gate_up and down, or up and down", b.class, have)
}

// alternate says whether gate and up rows alternate in a gate_up tensor.
func (b *builder) alternate(bias bool) (bool, error) {
	switch order := b.class.row.order; {
	case order == rowByRow, order == biased && bias:
		return true, nil
	case order == biased && b.rel.Declared.ModelType == "gpt_oss":
		return false, fmt.Errorf("routed experts %s could hold gate rows, then up rows (the tensors have no bias), or alternating rows (config says gpt_oss)", b.class)
	}
	return false, nil
}

// transposed finds for each projection whether its tensors are [in, out].
func (b *builder) transposed(x *Experts, data map[string]*Part) (map[string]bool, error) {
	if b.class.row.orient == dbrx {
		return map[string]bool{down: true}, nil
	}
	first, double := data[gateUp], int64(2)
	if first == nil {
		first, double = data[up], 1
	}
	last := data[down]
	t := false
	var err error
	switch {
	case len(first.Shape) > 2 || len(last.Shape) > 2: // blocks along the last axis, which is in
	case b.class.row.orient == outIn && double == 1:
		err = b.notTransposed(first, last)
	case plain(first.DType) && plain(last.DType):
		t, err = b.byShapes(first, last, double)
	default:
		t, err = b.byWidth(first, last)
	}
	if err != nil {
		return nil, err
	}
	return map[string]bool{gate: t, up: t, gateUp: t, down: t}, nil
}

// fits says whether the shapes of two plain tensors fit each other as [out, in] and as [in, out]: with down [H, I] and up [double*I, H],
// or down [I, H] and up [H, double*I].
func fits(up, down []int64, double int64) (oi, io bool) {
	if len(up) != 2 || len(down) != 2 {
		return false, false
	}
	return up[0] == double*down[1] && up[1] == down[0], up[0] == down[1] && up[1] == double*down[0]
}

// byShapes decides between the two orientations of plain tensors. With gate_up the two shapes settle it: it is twice as wide one way
// only. Else both fit, and H does: it is in of up and out of down.
func (b *builder) byShapes(first, last *Part, double int64) (transposed bool, err error) {
	oi, io := fits(first.Shape, last.Shape, double)
	if !oi && !io {
		return false, b.unfit(first, last)
	}
	if oi && io {
		w := b.hidden()
		oi, io = slices.Contains(w, first.Shape[1]), slices.Contains(w, first.Shape[0])
	}
	if oi != io {
		return io, nil
	}
	return false, b.ambiguous(first, last)
}

// byWidth decides for packed tensors, whose axes of blocks or codes say nothing: H is out of down, or in of gate_up.
func (b *builder) byWidth(first, last *Part) (transposed bool, err error) {
	w := b.hidden()
	oi, io := slices.Contains(w, last.Shape[0]), slices.Contains(w, first.Shape[0])
	if oi != io {
		return io, nil
	}
	return false, b.ambiguous(first, last)
}

// notTransposed checks a row that is always [out, in] where shapes are plain: they must fit, and H must not say the opposite of a
// fused tensor. (Experts of their own tensors are nn.Linear; in a latent MoE they may read another width than H.)
func (b *builder) notTransposed(first, last *Part) error {
	if !plain(first.DType) || !plain(last.DType) {
		return nil
	}
	if oi, _ := fits(first.Shape, last.Shape, 1); !oi {
		return b.unfit(first, last)
	}
	w := b.hidden()
	if first.Fused && !slices.Contains(w, first.Shape[1]) && slices.Contains(w, first.Shape[0]) {
		return b.ambiguous(first, last)
	}
	return nil
}

func (b *builder) unfit(first, last *Part) error {
	return fmt.Errorf("tensors %s %s%v and %s %s%v of one expert do not fit each other, neither as [out, in] nor as [in, out]",
		quoted(first.Tensor), quoted(first.DTypeName), first.Shape, quoted(last.Tensor), quoted(last.DTypeName), last.Shape)
}

func (b *builder) ambiguous(first, last *Part) error {
	width := "router and norm do not say the hidden size"
	if w := b.hidden(); len(w) > 0 {
		width = fmt.Sprintf("router and norm say a hidden size of %v", w)
	}
	return fmt.Errorf("tensors %s %s%v and %s %s%v of one expert could be [out, in] (hidden size %s) or [in, out] (hidden size %s); %s",
		quoted(first.Tensor), quoted(first.DTypeName), first.Shape, quoted(last.Tensor), quoted(last.DTypeName), last.Shape, axis(last, 0), axis(first, 0), width)
}

func axis(p *Part, i int) string {
	if i < len(p.Shape) {
		return strconv.FormatInt(p.Shape[i], 10)
	}
	return "unknown"
}

// router is the router of the first layer, [experts, hidden].
func (b *builder) router() (Tensor, bool) {
	for _, name := range routers {
		ref, ok := b.rel.Lookup(tensorAt(b.class.prefix, b.layers[0], name))
		if !ok {
			continue
		}
		if t := b.rel.Tensor(ref); plain(t.DType) && len(t.Shape) == 2 && t.Shape[0] > 0 {
			return t, true
		}
	}
	return Tensor{}, false
}

// hidden is what the router, or else the norms of the first layer, say that the hidden size is.
func (b *builder) hidden() (widths []int64) {
	if t, ok := b.router(); ok && (b.class.row.orient == dbrx || t.Shape[0] >= int64(b.expert)) {
		return []int64{t.Shape[1]}
	}
	for _, name := range norms {
		ref, ok := b.rel.Lookup(tensorAt(b.class.prefix, b.layers[0], name))
		if !ok {
			continue
		}
		if t := b.rel.Tensor(ref); len(t.Shape) == 1 && !slices.Contains(widths, t.Shape[0]) {
			widths = append(widths, t.Shape[0])
		}
	}
	return widths
}

// widths sets Hidden and Intermediate where the data is plain.
func (x *Experts) widths(data map[string]*Part) {
	d := data[down]
	if !plain(d.DType) || len(d.Shape) != 2 {
		return
	}
	x.Hidden, x.Intermediate = d.Shape[0], d.Shape[1]
	if d.Transposed {
		x.Hidden, x.Intermediate = d.Shape[1], d.Shape[0]
	}
}
