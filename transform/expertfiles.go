package transform

import (
	"context"
	"strconv"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
	"weightfs/transform/quant"
)

// expertFiles is experts/files/: one safetensors file per expert.
type expertFiles struct {
	in *input
	x  *release.Experts
}

// expertFilesDir is experts/files/: L<layer>/E<expert>.safetensors, and mtp/ with the same for multi-token prediction.
func expertFilesDir(in *input) (plan.Dir, cost, error) {
	if in.Experts == nil {
		return nil, cost{}, absent("", "%s", in.NoExperts)
	}
	s := in.sums()
	n := s.native[routed]
	main := (&expertFiles{in, in.Experts}).layers()
	if in.MTP == nil {
		return main, cost{n, n}, nil
	}
	n += s.native[mtp]
	return plus{main, plan.Folder("mtp", (&expertFiles{in, in.MTP}).layers())}, cost{n, n}, nil
}

// layers is the directory of the layers.
func (d *expertFiles) layers() plan.Dir {
	return layerDirs(d.x.Layers, d.x.PerLayer, ".safetensors", d.node)
}

// node is the file of one expert.
func (d *expertFiles) node(i, e int) plan.Node {
	ts := d.tensors(i, e)
	header, data, err := headerLen(ts, ptMetadata, pageBytes)
	if err != nil {
		panic("transform: the header of an expert: " + err.Error())
	}
	return plan.Node{Size: header + data, Open: func(context.Context) (*plan.Plan, error) {
		p, err := safetensorsFile(d.tensors(i, e), ptMetadata, pageBytes)
		if err == nil {
			p.Block = true
		}
		return p, err
	}}
}

// tensors are those of one expert, in the order of its file.
func (d *expertFiles) tensors(i, e int) []tensor {
	out := make([]tensor, 0, len(d.x.Parts))
	for k := range d.x.Parts {
		p := &d.x.Parts[k]
		ref, off := p.Ref(i, e, d.x.PerLayer)
		t := d.in.Tensor(ref)
		part := tensor{
			Tensor: safetensors.Tensor{Name: t.Name, DType: p.DType, DTypeName: p.DTypeName, Shape: p.Shape},
			size:   p.Bytes,
			pieces: func() []plan.Piece { return []plan.Piece{plan.Copy{Span: span(t).Sub(off, p.Bytes)}} },
		}
		if p.Fused {
			part.Name = ownName(t.Name, e)
		}
		out = append(out, part)
	}
	sortTensors(out)
	return out
}

// ownName is the name of one expert's share of a fused tensor: the expert's number before the projection.
func ownName(name string, e int) string {
	module, suffix := quant.Split(name)
	head, last := lastCut(module)
	return quant.TensorName(head+"."+strconv.Itoa(e)+"."+last, suffix)
}
