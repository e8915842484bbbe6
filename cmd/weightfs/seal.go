package main

import (
	"context"

	"github.com/spf13/cobra"

	"weightfs/fs/plan"
)

func newSealCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:   "seal SOURCE [PATH...]",
		Short: "Read files of the release once, compare them with the source's hashes, and check every later read",
		Long: `Read files of the release, all or those at and below each PATH, and compare them with the hashes that the source has. If a file is right, the
SHA-256 of each of its 128 KiB cells is kept in the cache directory, 0.02 % of its size. From then on whatever is fetched of it, or read from
disk, is compared with that, also when the cache has dropped it: wrong bytes are fetched again, then refused. --require-sealed refuses all
other files.`,
		Example: "  weightfs seal hf://Qwen/Qwen3-30B-A3B-FP8\n  weightfs mount --require-sealed hf://Qwen/Qwen3-30B-A3B-FP8 ~/qwen",
		Args:    args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error { return u.seal(ctx, o, orRelease(args[1:])) })
		},
	}
	set.addTo(c.Flags())
	return c
}

func (u *ui) seal(ctx context.Context, o *opened, paths []string) error {
	n := 0
	err := o.releaseFiles(ctx, paths, func(_ string, i int, _ plan.Node) error {
		if o.listing.Files[i].Size == 0 {
			return nil
		}
		n++
		return o.files.Seal(ctx, i)
	})
	if err == nil {
		u.notef("sealed %s, which the hashes of the source confirm", counted(n, "file"))
	}
	return err
}
