package release

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

const (
	// maxFacts bounds the bytes of all tensors that are read as facts.
	maxFacts = 32 << 20
	// factGap is how many bytes between two facts are read along rather than asked for separately.
	factGap = 64 << 10
)

// region is a run of bytes of one file that holds facts.
type region struct {
	file       int
	start, end int64
	refs       []Ref
}

// Facts reads the contents of small side tensors that shapes depend on, at most 32 MB of them together. Tensors that lie close
// together are read as one region.
func (rel *Release) Facts(ctx context.Context, refs []Ref) (map[Ref][]byte, error) {
	refs = slices.Clone(refs)
	slices.SortFunc(refs, func(a, b Ref) int { return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Index, b.Index)) })
	refs = slices.Compact(refs)
	var total int64
	for _, ref := range refs {
		t := rel.Tensor(ref)
		if total += t.End - t.Start; total > maxFacts {
			return nil, fmt.Errorf("side tensors to read before shapes are known exceed %d bytes, at tensor %s of %d bytes", maxFacts, quoted(t.Name), t.End-t.Start)
		}
	}
	regions := rel.regions(refs)
	read := make([][]byte, len(regions))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, r := range regions {
		g.Go(func() error {
			path := rel.Listing.Files[r.file].Path
			read[i] = make([]byte, r.end-r.start)
			if len(read[i]) == 0 {
				return nil
			}
			if err := rel.reader.ReadAt(ctx, path, read[i], r.start); err != nil {
				return fmt.Errorf("reading %d side tensors of shard %s at [%d, %d): %w", len(r.refs), quoted(path), r.start, r.end, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	facts := make(map[Ref][]byte, len(refs))
	for i, r := range regions {
		for _, ref := range r.refs {
			t := rel.Tensor(ref)
			facts[ref] = slices.Clone(read[i][t.Start-r.start : t.End-r.start])
		}
	}
	return facts, nil
}

// regions joins tensors, sorted by place, that are at most factGap apart.
func (rel *Release) regions(refs []Ref) (out []region) {
	for _, ref := range refs {
		t := rel.Tensor(ref)
		if n := len(out); n > 0 && out[n-1].file == t.File && t.Start-out[n-1].end <= factGap {
			out[n-1].end = t.End
			out[n-1].refs = append(out[n-1].refs, ref)
			continue
		}
		out = append(out, region{t.File, t.Start, t.End, []Ref{ref}})
	}
	return out
}
