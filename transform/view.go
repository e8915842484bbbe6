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
	views := []View{
		{"bf16", "A model directory: quantized tensors dequantized to BF16 under the names of the unquantized checkpoint, all others untouched.",
			func(in *input) (plan.Dir, cost, error) { return dequantizedDir(in, false) }},
		{"bf16-all", "As bf16/, with every floating tensor narrowed to BF16.",
			func(in *input) (plan.Dir, cost, error) { return dequantizedDir(in, true) }},
		{"resident", "A model directory of every tensor that is not a routed expert, as it stands in the release.", residentDir},
		{"resident-bf16", "As resident/, with quantized tensors dequantized to BF16.", residentBF16Dir},
		{"resident-text", "A model directory of the language model alone: resident/ without vision, audio and multi-token prediction.", residentTextDir},
	}
	generic := embedded("generic")
	for _, e := range encodings() {
		views = append(views, View{"experts/" + e.name, e.about, generic.with(e.name).build})
	}
	return append(views,
		embedded("webai").view(),
		embedded("flash-moe").view(),
		View{"experts/files", "One safetensors file per routed expert, L<layer>/E<expert>.safetensors, names and bytes as in the release (the expert's number before the projection where a tensor holds all of them).", expertFilesDir},
		View{"ranks", aboutRanks, ranksDir},
		View{"split", "A model directory with every projection of every expert a tensor of its own, [out, in], as transformers names them; dtypes as in the release.",
			func(in *input) (plan.Dir, cost, error) { return splitDir(in, false) }},
		View{"split-bf16", "As split/, with quantized tensors dequantized to BF16.", func(in *input) (plan.Dir, cost, error) { return splitDir(in, true) }},
		View{"fused", "A model directory with all experts of a layer in one tensor a projection, [experts, out, in] with gate rows before up rows, as transformers names them; dtypes as in the release.",
			func(in *input) (plan.Dir, cost, error) { return fusedDir(in, false) }},
		View{"fused-bf16", "As fused/, with quantized tensors dequantized to BF16.", func(in *input) (plan.Dir, cost, error) { return fusedDir(in, true) }},
		View{"layers", "A model directory with one file per module (embedding, layer 0, ..., head) in splitted_model/, each with the marker beside it that AirLLM looks for.", layersDir},
		View{"tensors", aboutTensors, tensorsDir},
	)
}

// dequantizedDir is bf16/ or bf16-all/.
func dequantizedDir(in *input, all bool) (plan.Dir, cost, error) {
	s := in.sums()
	if err := s.exact(resident, routed, mtp); err != nil {
		return nil, cost{}, err
	}
	if err := in.checkConfig(); err != nil {
		return nil, cost{}, err
	}
	c := cost{total(s.native), total(s.bf16)}
	if all {
		c.shown = total(s.all)
	}
	return newModelDir(in, in.bf16(all), editConfig), c, nil
}

// checkConfig refuses views that edit configuration files if that cannot be done.
func (in *input) checkConfig() error {
	for _, name := range configFiles {
		if text := in.Files[name]; text != nil {
			if _, err := editConfig(text); err != nil {
				return absent("", "%s: %v", name, err)
			}
		}
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
		return &Absent{View: view, Tensor: a.Tensor, Reason: a.Reason, Err: a.Err}
	}
	return &Absent{View: view, Reason: fmt.Sprint(err)}
}
