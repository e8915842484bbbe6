package main

import (
	"context"
	"io"

	"github.com/spf13/cobra"
)

func newCatCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:     "cat SOURCE PATH...",
		Short:   "Write files of the tree to standard output",
		Example: "  weightfs cat hf://Qwen/Qwen3-30B-A3B-FP8 bf16/config.json",
		Args:    args(2, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error { return u.cat(ctx, o, args[1:]) })
		},
	}
	set.addTo(c.Flags())
	return c
}

func (u *ui) cat(ctx context.Context, o *opened, paths []string) error {
	buf := make([]byte, 4<<20)
	for _, name := range paths {
		p, err := o.openFile(ctx, cleanPath(name))
		if err != nil {
			return err
		}
		// The wrappers hide ReadFrom and WriterTo, which would use another buffer.
		in := struct{ io.Reader }{&content{ctx: ctx, reader: o.reader, plan: p}}
		if _, err := io.CopyBuffer(struct{ io.Writer }{u.out}, in, buf); err != nil {
			return err
		}
	}
	return nil
}
