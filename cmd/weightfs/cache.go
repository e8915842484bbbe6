package main

import "github.com/spf13/cobra"

func newCacheCommand(u *ui) *cobra.Command {
	c := &cobra.Command{Use: "cache", Short: "Look after the disk cache"}
	c.AddCommand(newCacheInfoCommand(u))
	return c
}

func newCacheInfoCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:     "info",
		Short:   "Say where the disk cache is and how full",
		Example: "  weightfs cache info",
		Args:    args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			session, err := set.open(1, nil)
			if err != nil {
				return err
			}
			defer session.Close()
			s := session.cache.Stats()
			if u.json {
				return u.printJSON(struct {
					Dir  string `json:"dir"`
					Used int64  `json:"used"`
					Size int64  `json:"size"`
				}{s.Dir, s.DiskUsed, s.DiskSize})
			}
			return u.table([][]string{{"directory", oneLine(s.Dir)}, {"holds", size(s.DiskUsed)}, {"at most", size(s.DiskSize)}})
		},
	}
	set.addTo(c.Flags())
	return c
}
