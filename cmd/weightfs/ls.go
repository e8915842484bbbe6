package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"weightfs/fs/plan"
)

func newLsCommand(u *ui) *cobra.Command {
	var set settings
	var long, recursive bool
	c := &cobra.Command{
		Use:     "ls SOURCE [PATH]",
		Short:   "List the tree of a release with no mount",
		Example: "  weightfs ls hf://Qwen/Qwen3-30B-A3B-FP8\n  weightfs ls -lR ./model experts",
		Args:    args(1, 2),
		RunE: func(c *cobra.Command, args []string) error {
			p := cleanPath(append(args, "")[1])
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error {
				return (&lister{u, long, recursive}).list(ctx, o, p)
			})
		},
	}
	set.addTo(c.Flags())
	c.Flags().BoolVarP(&long, "long", "l", false, "sizes too")
	c.Flags().BoolVarP(&recursive, "recursive", "R", false, "everything below")
	return c
}

type lister struct {
	u               *ui
	long, recursive bool
}

// listed is an entry as ls --json prints it.
type listed struct {
	Path string `json:"path"`
	Size int64  `json:"size"`
	Dir  bool   `json:"dir,omitempty"`
}

func (l *lister) list(ctx context.Context, o *opened, p string) error {
	n, err := o.find(ctx, p)
	if err != nil {
		return err
	}
	if n.Dir == nil {
		return l.print(p, n)
	}
	return l.dir(ctx, n.Dir, "")
}

// dir prints a directory; paths are relative to the one that was asked for.
func (l *lister) dir(ctx context.Context, d plan.Dir, prefix string) error {
	nodes, err := d.List(ctx)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if err := l.print(prefix+n.Name, n); err != nil {
			return err
		}
		if l.recursive && n.Dir != nil {
			if err := l.dir(ctx, n.Dir, prefix+n.Name+"/"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *lister) print(name string, n plan.Node) error {
	if l.u.json {
		return l.u.printLine(listed{Path: name, Size: n.Size, Dir: n.Dir != nil})
	}
	amount := strconv.FormatInt(n.Size, 10)
	if n.Live != nil {
		amount = "-"
	}
	if n.Dir != nil {
		name, amount = name+"/", "-"
	}
	if l.long {
		_, err := fmt.Fprintf(l.u.out, "%15s  %s\n", amount, name)
		return err
	}
	_, err := fmt.Fprintln(l.u.out, name)
	return err
}
