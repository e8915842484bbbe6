// Package transform computes views: directories of files that exist nowhere, as plans over the bytes of a release.
//
// [Views] is the list of views. A view is a pure function from an opened release to a tree of plans ([plan.Dir]); nothing here does I/O.
// [Tree] is the root of a mount: the release itself, from the listing alone, and beside it the views, from the headers.
//
// A view that cannot be exact is [Absent]. Listings hold names and sizes only, computed by arithmetic; plans are made when a file is
// opened.
package transform

import (
	"fmt"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// View is one row of the list of views.
type View struct {
	Name  string // its path below the root
	About string // what it is, in one sentence
	// build makes the view's directory. It decides whether the view is absent, from headers and facts; names and sizes may wait
	// until the directory is listed.
	build func(in *input) (plan.Dir, cost, error)
}

// cost is what reading a view whole takes: bytes of weights of the release, and bytes of weights shown.
type cost struct{ source, shown int64 }

// Views lists the views in the order of the README.
func Views() []View {
	return []View{
		{"bf16", "A model directory: quantized tensors dequantized to BF16 under the names of the unquantized checkpoint, all others untouched.",
			func(in *input) (plan.Dir, cost, error) { return dequantizedDir(in, false) }},
		{"bf16-all", "The same with every floating tensor narrowed to BF16.",
			func(in *input) (plan.Dir, cost, error) { return dequantizedDir(in, true) }},
		{"resident", "A model directory of every tensor that is not a routed expert, as it stands in the release.", residentDir},
		{"experts/native", "One aligned block per routed expert with the release's own bytes: expert_blocks.bin, the same blocks one by one in blocks/, and manifest.json, which says where the parts are.",
			func(in *input) (plan.Dir, cost, error) { return expertsDir(in, native, partAlign, pageBytes) }},
		{"experts/bf16", "The same with parts gate, up and down as BF16 matrices of [out, in].",
			func(in *input) (plan.Dir, cost, error) { return expertsDir(in, bf16Experts, partAlign, pageBytes) }},
	}
}

// dequantizedDir is bf16/ or bf16-all/.
func dequantizedDir(in *input, all bool) (plan.Dir, cost, error) {
	s := in.sums()
	if err := s.exact(resident, routed, mtp); err != nil {
		return nil, cost{}, err
	}
	if in.Config != nil {
		if _, err := editConfig(in.Config); err != nil {
			return nil, cost{}, absent("", "%v", err)
		}
	}
	c := cost{total(s.native), total(s.bf16)}
	if all {
		c.shown = total(s.all)
	}
	return newModelDir(in, in.bf16(all), editConfig), c, nil
}

// residentDir is resident/.
func residentDir(in *input) (plan.Dir, cost, error) {
	n := in.sums().native[resident]
	return newModelDir(in, in.residents, nil), cost{n, n}, nil
}

// residents is the mapping of resident/.
func (in *input) residents(i int32, emit func(tensor)) error {
	if ref := in.ref(i); in.Role(ref) == release.Resident {
		emit(copied(in.Tensor(ref)))
	}
	return nil
}

// built is a view that was made for a release: Dir, or the reason why it is absent.
type built struct {
	View
	dir  plan.Dir
	cost cost
	err  error
}

// buildAll makes every view.
func buildAll(in *input, views []View) []built {
	out := make([]built, len(views))
	for k, v := range views {
		out[k].View = v
		out[k].dir, out[k].cost, out[k].err = v.build(in)
		if out[k].err != nil {
			out[k].err = named(v.Name, out[k].err)
		}
	}
	return out
}

// named puts the view's name into its refusal.
func named(view string, err error) error {
	if a, ok := err.(*Absent); ok {
		return &Absent{View: view, Tensor: a.Tensor, Reason: a.Reason}
	}
	return &Absent{View: view, Reason: fmt.Sprint(err)}
}
