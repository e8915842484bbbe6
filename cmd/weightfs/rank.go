package main

import (
	"context"
	"fmt"
	"path"

	"weightfs/fs/plan"
	"weightfs/sources/release"
)

// rankCost is what one rank of an expert-parallel group costs, as explain --rank --json prints it.
type rankCost struct {
	Rank         int   `json:"rank"`
	Of           int   `json:"of"`
	ExpertFiles  int   `json:"expertFiles"`  // shards with the rank's routed experts, MTP included
	Files        int   `json:"files"`        // shards it reads at all
	ReleaseFiles int   `json:"releaseFiles"` // all shards
	Requests     int   `json:"requests"`     // that reading every file of ranks/<of>/<rank> once sends with an empty cache
	Bytes        int64 `json:"bytes"`        // of these requests
}

func (u *ui) explainRank(ctx context.Context, o *opened, rank, of int) error {
	if of < 1 || rank < 0 || rank >= of {
		return usageError{fmt.Sprintf("there is no rank %d of %d", rank, of), "ranks count from 0: --rank 3 --of 16"}
	}
	c, err := o.costOfRank(ctx, rank, of)
	if err != nil {
		return err
	}
	if u.json {
		return u.printJSON(c)
	}
	u.printf("rank %d of %d has its routed experts in %d of %d shards and reads %d of them\n", c.Rank, c.Of, c.ExpertFiles, c.ReleaseFiles, c.Files)
	u.printf("reading ranks/%d/%d once sends %d requests for %s\n", c.Of, c.Rank, c.Requests, size(c.Bytes))
	return nil
}

func (o *opened) costOfRank(ctx context.Context, rank, of int) (*rankCost, error) {
	rel, err := o.release(ctx)
	if err != nil {
		return nil, err
	}
	c := &rankCost{Rank: rank, Of: of, ReleaseFiles: len(rel.Shards), ExpertFiles: len(expertShards(rel, rank, of))}
	dir := path.Join("ranks", fmt.Sprint(of), fmt.Sprint(rank))
	n, err := o.find(ctx, dir)
	if err != nil {
		return nil, err
	}
	shard := map[int]bool{}
	for _, s := range rel.Shards {
		shard[s.File] = false
	}
	asker := o.newAsker()
	err = walk(ctx, n, dir, func(file string, x plan.Node) error {
		p, err := x.Open(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, s := range p.Spans(0, p.Size) {
			if _, ok := shard[s.File]; ok {
				shard[s.File] = true
			}
		}
		sent := requests(asker, p)
		c.Requests += len(sent)
		c.Bytes += lengthOf(sent)
		return nil
	})
	for _, read := range shard {
		if read {
			c.Files++
		}
	}
	return c, err
}

// expertShards is the shards that hold routed experts of a rank: its contiguous run of every layer's, the first ranks having one more
// where they do not divide.
func expertShards(rel *release.Release, rank, of int) map[int32]bool {
	shards := map[int32]bool{}
	for _, x := range []*release.Experts{rel.Experts, rel.MTP} {
		if x == nil {
			continue
		}
		each, more := x.PerLayer/of, x.PerLayer%of
		first := rank*each + min(rank, more)
		end := first + each
		if rank < more {
			end++
		}
		for p := range x.Parts {
			for layer := range x.Layers {
				for e := first; e < end; e++ {
					ref, _ := x.Parts[p].Ref(layer, e, x.PerLayer)
					shards[ref.Shard] = true
				}
			}
		}
	}
	return shards
}
