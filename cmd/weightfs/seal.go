package main

import (
	"context"
	"fmt"
	"strings"

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
			paths := args[1:]
			if len(paths) == 0 {
				paths = []string{"release"}
			}
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error { return seal(ctx, u, o, paths) })
		},
	}
	set.addTo(c.Flags())
	return c
}

func seal(ctx context.Context, u *ui, o *opened, paths []string) error {
	n := 0
	one := func(name string, _ plan.Node) error {
		rest, below := strings.CutPrefix(name, "release/")
		i := o.listing.Find(rest)
		if !below || i < 0 {
			return usageError{fmt.Sprintf("%s is no file of the release", name), "seal takes files below release; the bytes of views follow from them"}
		}
		if o.listing.Files[i].Size == 0 {
			return nil
		}
		n++
		return o.files.Seal(ctx, i)
	}
	for _, p := range paths {
		p = cleanPath(p)
		at, err := o.find(ctx, p)
		if err == nil {
			err = walk(ctx, at, p, one)
		}
		if err != nil {
			return err
		}
	}
	u.notef("%d files have the hashes that the source has, and are sealed", n)
	return nil
}
