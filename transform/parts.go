package transform

import (
	"context"
	"sort"

	"weightfs/fs/plan"
	"weightfs/sources/release"
	"weightfs/sources/safetensors"
)

// SetParts tells the plans of the release's own shards, release/ below root, where tensors are, so that touching one fetches it. Shards that
// release/ does not show are passed over.
func SetParts(ctx context.Context, root plan.Dir, r *release.Release) {
	for i := range r.Shards {
		s := &r.Shards[i]
		n, err := plan.Walk(ctx, root, "release/"+s.Path)
		if err != nil || n.Open == nil {
			continue
		}
		if p, err := n.Open(ctx); err == nil {
			p.SetParts(partsOf(s.Header))
		}
	}
}

// partsOf are the tensors of a shard.
func partsOf(h *safetensors.Header) plan.Parts {
	return func(off int64) (start, end int64) {
		at := off - h.DataStart()
		i := sort.Search(h.Len(), func(i int) bool { return h.At(i).End > at })
		if at < 0 || i == h.Len() {
			return 0, 0
		}
		t := h.At(i)
		return h.DataStart() + t.Begin, h.DataStart() + t.End
	}
}
