package main

import (
	"context"
	"errors"
	"fmt"
	"path"

	"weightfs/fs/plan"
	"weightfs/transform"
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
	files, err := transform.Rank(rel, rank, of)
	var absent *transform.Absent
	if err != nil && !errors.As(err, &absent) {
		return nil, usageError{err.Error(), "ranks count from 0: --rank 3 --of 16"}
	} else if err != nil {
		return nil, err
	}
	c := &rankCost{Rank: rank, Of: of, ExpertFiles: len(files.ExpertFiles), Files: len(files.Files), ReleaseFiles: len(files.ReleaseFiles)}
	dir := path.Join("ranks", fmt.Sprint(of), fmt.Sprint(rank))
	n, err := o.find(ctx, dir)
	if err != nil {
		return nil, err
	}
	asker := o.newAsker()
	return c, walk(ctx, n, dir, func(file string, x plan.Node) error {
		p, err := x.Open(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		sent := requests(asker, p)
		c.Requests += len(sent)
		c.Bytes += lengthOf(sent)
		return nil
	})
}
