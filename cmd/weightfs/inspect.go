package main

import (
	"context"

	"github.com/spf13/cobra"
)

func newInspectCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:     "inspect SOURCE",
		Short:   "Say what the headers of a release say; reads no weights",
		Example: "  weightfs inspect hf://Qwen/Qwen3-30B-A3B-FP8\n  weightfs inspect --json ./model",
		Args:    args(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error {
				s, err := o.summarise(ctx)
				if err != nil {
					return err
				}
				if u.json {
					return u.printJSON(s)
				}
				u.printf("%s", s.text())
				return nil
			})
		},
	}
	set.addTo(c.Flags())
	return c
}
