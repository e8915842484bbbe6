package release

import (
	"errors"
	"fmt"
	"slices"

	"weightfs/sources/safetensors"
)

// builder makes Experts of a class.
type builder struct {
	rel    *Release
	class  *class
	layers []int32 // ascending
	expert int     // per layer
}

func (b *builder) build() (*Experts, error) {
	cols := b.class.sortedColumns()
	if err := b.count(cols); err != nil {
		return nil, err
	}
	x := &Experts{Family: b.class.row.name, Prefix: b.class.prefix, PerLayer: b.expert}
	for _, l := range b.layers {
		x.Layers = append(x.Layers, int(l))
	}
	for _, col := range cols {
		p, err := b.part(col)
		if err != nil {
			return nil, err
		}
		x.Parts = append(x.Parts, p)
	}
	if err := b.orient(x); err != nil {
		return nil, err
	}
	return x, nil
}

// count finds the layers and the number of experts per layer.
func (b *builder) count(cols []*column) error {
	for _, col := range cols {
		for p := range col.places.all() {
			if n := len(b.layers); n == 0 || b.layers[n-1] != p.layer {
				b.layers = append(b.layers, p.layer)
			}
		}
	}
	slices.Sort(b.layers)
	b.layers = slices.Compact(b.layers)
	data := slices.IndexFunc(cols, func(c *column) bool { return isData(c.suffix) })
	if data < 0 {
		return fmt.Errorf("routed experts %s have side tensors but no weights", b.class)
	}
	if b.class.row.fused {
		return b.countFused(cols[data])
	}
	return b.countSingle(cols[data])
}

// countSingle counts the experts of each layer in a column of one tensor an expert.
func (b *builder) countSingle(col *column) error {
	counts := make([]int, len(b.layers))
	most := int32(0)
	for p := range col.places.all() {
		counts[b.layerIndex(p.layer)]++
		most = max(most, p.expert)
	}
	for i, n := range counts {
		if n != counts[0] {
			return fmt.Errorf("layers have different numbers of experts: layer %d has %d tensors %s, layer %d has %d",
				b.layers[0], counts[0], quoted(col.template), b.layers[i], n)
		}
	}
	if int(most) >= counts[0] {
		return fmt.Errorf("experts of tensors %s are not numbered from 0 without gaps: there are %d a layer, and an expert %d", quoted(col.template), counts[0], most)
	}
	b.expert = counts[0]
	return nil
}

// countFused takes the number of experts from the first axis, or in DBRX's 2-D form from the router.
func (b *builder) countFused(col *column) error {
	t := b.rel.Tensor(col.places[0][0].ref)
	if len(t.Shape) < 2 || t.Shape[0] < 1 {
		return fmt.Errorf("tensor %s has shape %v: a fused tensor has the experts as its first axis", quoted(t.Name), t.Shape)
	}
	b.expert = int(t.Shape[0])
	if b.class.row.orient != dbrx {
		if len(t.Shape) < 3 {
			return fmt.Errorf("tensor %s has shape %v: a fused tensor is [experts, out, in] or [experts, in, out]", quoted(t.Name), t.Shape)
		}
		return nil
	}
	router, ok := b.router()
	n := b.rel.Declared.Experts
	if ok {
		n = router.Shape[0]
	}
	if n < 1 || t.Shape[0]%n != 0 {
		return fmt.Errorf("tensor %s has %d rows of all experts, and neither router nor config says how many experts share them", quoted(t.Name), t.Shape[0])
	}
	b.expert = int(n)
	return nil
}

func (b *builder) layerIndex(layer int32) int {
	i, _ := slices.BinarySearch(b.layers, layer)
	return i
}

// part makes the part of a column: all its tensors are there and alike.
func (b *builder) part(col *column) (Part, error) {
	fused := b.class.row.fused
	p := Part{Projection: col.proj.projection, Suffix: col.suffix, Tensor: col.template, Fused: fused, UpFirst: col.proj.upFirst}
	perLayer := b.expert
	if fused {
		perLayer = 1
	}
	if err := b.complete(col, perLayer); err != nil {
		return Part{}, err
	}
	p.Refs = make([]Ref, len(b.layers)*perLayer)
	first := b.rel.Tensor(col.places[0][0].ref)
	alike := kindIn{shard: -1}
	for pl := range col.places.all() {
		p.Refs[b.layerIndex(pl.layer)*perLayer+int(pl.expert)] = pl.ref
		kind := b.rel.kindIn(pl.ref)
		if kind == alike {
			continue
		}
		t := b.rel.Tensor(pl.ref)
		if t.DTypeName != first.DTypeName || !slices.Equal(t.Shape, first.Shape) || t.End-t.Start != first.End-first.Start {
			return Part{}, fmt.Errorf("experts differ: tensor %s is %s%v, tensor %s is %s%v",
				quoted(first.Name), quoted(first.DTypeName), first.Shape, quoted(t.Name), quoted(t.DTypeName), t.Shape)
		}
		alike = kind
	}
	p.DType, p.DTypeName, p.Shape, p.Bytes = first.DType, first.DTypeName, first.Shape, first.End-first.Start
	if !fused {
		return p, nil
	}
	return p, b.slice(&p, first)
}

// kindIn is a kind of tensors in one shard: their dtype, shape and length.
type kindIn struct {
	shard int32
	kind  uint32
	bytes int64
}

func (r *Release) kindIn(ref Ref) kindIn {
	h := r.Shards[ref.Shard].Header
	return kindIn{ref.Shard, h.Kind(int(ref.Index)), h.Bytes(int(ref.Index))}
}

// complete checks that a column has one tensor for every layer and expert.
func (b *builder) complete(col *column, perLayer int) error {
	most := int32(0)
	for p := range col.places.all() {
		most = max(most, p.expert)
	}
	if col.places.len() == len(b.layers)*perLayer && int(most) < perLayer {
		return nil // names are unique, so that no place is taken twice
	}
	have := map[place]bool{}
	for p := range col.places.all() {
		have[place{layer: p.layer, expert: p.expert}] = true
		if int(p.expert) >= perLayer {
			return fmt.Errorf("tensor %s has an expert %d in layer %d; other tensors have experts up to %d", quoted(col.template), p.expert, p.layer, perLayer-1)
		}
	}
	for _, l := range b.layers {
		for e := range perLayer {
			if !have[place{layer: l, expert: int32(e)}] {
				return fmt.Errorf("tensor %s is missing for layer %d, expert %d", quoted(col.template), l, e)
			}
		}
	}
	return errors.New("unreachable: a column is neither complete nor incomplete")
}

// slice cuts a fused tensor's shape and bytes to one expert.
func (b *builder) slice(p *Part, t Tensor) error {
	n := int64(b.expert)
	if b.class.row.orient == dbrx && len(t.Shape) == 2 && t.Shape[0]%n == 0 {
		p.Shape = []int64{t.Shape[0] / n, t.Shape[1]}
		p.Bytes /= n
		return nil
	}
	if len(t.Shape) > 0 && t.Shape[0] == n {
		p.Shape = t.Shape[1:]
		if p.Bytes%n != 0 || (int64(t.DType.Bits())*elements(p.Shape))%8 != 0 {
			return fmt.Errorf("tensor %s is %s%v: one of its %d experts does not begin on a byte", quoted(t.Name), quoted(t.DTypeName), t.Shape, n)
		}
		p.Bytes /= n
		return nil
	}
	if !isData(p.Suffix) && elements(t.Shape) == 1 {
		p.Shared = true
		return nil
	}
	return fmt.Errorf("tensor %s is %s%v: its first axis is not the %d experts", quoted(t.Name), quoted(t.DTypeName), t.Shape, n)
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// plain says that an element of a tensor is one weight, so that its shape is the matrix's. (U16 is BF16 to readers that lack it.)
func plain(d safetensors.DType) bool {
	switch d {
	case safetensors.U8, safetensors.I8, safetensors.BOOL, safetensors.I32, safetensors.U32, safetensors.I64, safetensors.U64, safetensors.C64, safetensors.Opaque:
		return false
	}
	return true
}
