package transform

import (
	"context"
	"sort"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// SetParts tells the plans of the release's own shards, release/ below root, where tensors are, so that touching one fetches it; of a large
// tensor that holds the experts of a layer, the one expert. Shards that release/ does not show are passed over.
func SetParts(ctx context.Context, root plan.Dir, r *release.Release) {
	experts := stacked(r)
	for i := range r.Shards {
		s := &r.Shards[i]
		n, err := plan.Walk(ctx, root, "release/"+s.Path)
		if err != nil || n.Open == nil {
			continue
		}
		if p, err := n.Open(ctx); err == nil {
			p.SetParts(partsOf(int32(i), s.Header, experts))
		}
	}
}

// stacked is the bytes of one expert in each tensor that holds all of a layer's.
func stacked(r *release.Release) map[release.Ref]int64 {
	out := map[release.Ref]int64{}
	for _, x := range []*release.Experts{r.Experts, r.MTP} {
		if x == nil {
			continue
		}
		for i := range x.Parts {
			if p := &x.Parts[i]; p.Fused && !p.Shared {
				for _, ref := range p.Refs {
					out[ref] = p.Bytes
				}
			}
		}
	}
	return out
}

// partsOf are the tensors of a shard, those too large to be fetched at a touch cut into experts where they hold several.
func partsOf(shard int32, h *safetensors.Header, experts map[release.Ref]int64) plan.Parts {
	return func(off int64) (start, end int64) {
		at := off - h.DataStart()
		i := sort.Search(h.Len(), func(i int) bool { return h.At(i).End > at })
		if at < 0 || i == h.Len() {
			return 0, 0
		}
		t := h.At(i)
		start, end = t.Begin, t.End
		if n := experts[release.Ref{Shard: shard, Index: int32(i)}]; n > 0 && end-start > plan.PartMax {
			start += (at - start) / n * n
			end = min(end, start+n)
		}
		return h.DataStart() + start, h.DataStart() + end
	}
}
