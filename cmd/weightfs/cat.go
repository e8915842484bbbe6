package main

import (
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
			session, o, err := set.openOne(c.Context(), args[0])
			if err != nil {
				return err
			}
			defer session.Close()
			buf := make([]byte, 4<<20)
			for _, arg := range args[1:] {
				p, err := o.openFile(c.Context(), cleanPath(arg))
				if err != nil {
					return err
				}
				// The wrappers hide ReadFrom and WriterTo, which would use another buffer.
				in := struct{ io.Reader }{&content{ctx: c.Context(), reader: o.reader, plan: p}}
				if _, err := io.CopyBuffer(struct{ io.Writer }{u.out}, in, buf); err != nil {
					return err
				}
			}
			return nil
		},
	}
	set.addTo(c.Flags())
	return c
}
