package transform

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// residentDir is resident/.
func residentDir(in *input) (plan.Dir, cost, error) {
	n := in.sums().native[resident]
	return newModelDir(in, in.residents, nil), cost{n, n}, nil
}

// residentBF16Dir is resident-bf16/.
func residentBF16Dir(in *input) (plan.Dir, cost, error) {
	s := in.sums()
	if err := s.exact(resident); err != nil {
		return nil, cost{}, err
	}
	show := in.bf16(false)
	mapping := func(i int32, emit func(tensor)) error {
		if in.Role(in.ref(i)) != release.Resident {
			return nil
		}
		return show(i, emit)
	}
	return newModelDir(in, mapping, editConfig), cost{s.native[resident], s.bf16[resident]}, in.checkConfig()
}

// residentTextDir is resident-text/.
func residentTextDir(in *input) (plan.Dir, cost, error) {
	var c cost
	mapping := func(i int32, emit func(tensor)) error {
		ref := in.ref(i)
		if in.Role(ref) != release.Resident {
			return nil
		}
		if t := in.Tensor(ref); in.isText(t.Name) {
			emit(copied(t))
		}
		return nil
	}
	for i := range in.base[len(in.Shards)] {
		if err := mapping(i, func(t tensor) { c.shown += t.size }); err != nil {
			return nil, c, err
		}
	}
	c.source = c.shown
	return newModelDir(in, mapping, nil), c, nil
}

// residents is the mapping of resident/.
func (in *input) residents(i int32, emit func(tensor)) error {
	if ref := in.ref(i); in.Role(ref) == release.Resident {
		emit(copied(in.Tensor(ref)))
	}
	return nil
}

// senses are components of the names of tensors that see or hear: whole ones, and beginnings of them.
var senses = struct{ whole, begin []string }{
	whole: []string{"visual", "vit", "mm_projector", "multi_modal_projector", "patch_merger", "pre_mm_projector_norm", "aligner", "perceiver", "resampler"},
	begin: []string{"vision", "image", "audio", "speech", "embed_vision", "embed_audio"},
}

// isText says whether a tensor belongs to the language model's main layers, embeddings and head: neither to another modality nor to
// multi-token prediction.
func (in *input) isText(name string) bool {
	parts := strings.Split(name, ".")
	for _, part := range parts {
		if strings.HasPrefix(part, "mtp") || strings.HasPrefix(part, "nextn") {
			return false
		}
	}
	return !isSense(name) && !in.isExtraLayer(name, parts)
}

// isSense says whether a tensor belongs to vision or audio.
func isSense(name string) bool {
	for part := range strings.SplitSeq(name, ".") {
		if slices.Contains(senses.whole, part) || slices.ContainsFunc(senses.begin, func(b string) bool { return strings.HasPrefix(part, b) }) {
			return true
		}
	}
	return false
}

// isExtraLayer says whether a tensor stands in a layer of multi-token prediction that is numbered like the main ones.
func (in *input) isExtraLayer(name string, parts []string) bool {
	if x := in.MTP; x != nil {
		for _, l := range x.Layers {
			if strings.HasPrefix(name, fmt.Sprintf("%s.%d.", x.Prefix, l)) {
				return true
			}
		}
	}
	for k := 1; k < len(parts); k++ {
		if parts[k-1] == "layers" && in.Declared.Layers > 0 {
			l, err := strconv.ParseInt(parts[k], 10, 64)
			return err == nil && l >= in.Declared.Layers
		}
	}
	return false
}
