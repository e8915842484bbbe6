package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"weightfs/cache"
	"weightfs/sources"
)

func newCacheCommand(u *ui) *cobra.Command {
	c := &cobra.Command{
		Use:     "cache",
		Short:   "Look after the disk cache",
		Example: "  weightfs cache info\n  weightfs cache prune --keep 200GB\n  weightfs cache verify",
		Args:    unknownCommand,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(newCacheInfoCommand(u), newCachePruneCommand(u), newCacheVerifyCommand(u))
	return c
}

// noCache is the error of looking after a cache that is not there.
type noCache struct{ dir string }

func (e *noCache) Error() string { return "there is no cache at " + e.dir }

// withCache is what the commands do that look after the cache. Where there is none they make none: the directory may be anything.
func (s *settings) withCache(fn func(*cache.Cache) error) error {
	dir, err := s.dir(nil)
	if err != nil {
		return err
	}
	if dir != "" {
		is, err := cache.Is(dir)
		if err != nil {
			return err
		}
		if !is {
			return hinted{&noCache{dir}, "--cache-dir DIR names another place; a cache is made when a remote release is read"}
		}
	}
	session, err := s.open(nil, nil)
	if err != nil {
		return err
	}
	defer session.Close()
	err = fn(session.cache)
	if errors.Is(err, cache.ErrInUse) {
		return hinted{err, "weightfs status shows the mounts; unmount them, or look after the cache later"}
	}
	return err
}

func newCacheInfoCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:   "info",
		Short: "Say where the disk cache is and how full",
		Args:  args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			err := set.withCache(func(c *cache.Cache) error { return u.cacheInfo(c.Stats()) })
			var none *noCache
			if errors.As(err, &none) {
				return u.cacheInfo(cache.Stats{Dir: none.dir, DiskSize: int64(set.cacheSize)})
			}
			return err
		},
	}
	set.addCacheTo(c.Flags())
	return c
}

// cacheInfo tells of a cache. The most that it may hold is 0 where there is none and --cache-size does not say.
func (u *ui) cacheInfo(s cache.Stats) error {
	if u.json {
		return u.printJSON(struct {
			Dir  string `json:"dir"`
			Used int64  `json:"used"`
			Size int64  `json:"size"`
		}{s.Dir, s.DiskUsed, s.DiskSize})
	}
	rows := [][]string{{"directory", oneLine(s.Dir)}, {"holds", size(s.DiskUsed)}}
	if s.DiskSize > 0 {
		rows = append(rows, []string{"at most", size(s.DiskSize)})
	}
	return u.table(rows)
}

func newCachePruneCommand(u *ui) *cobra.Command {
	var set settings
	var keep sizeFlag
	c := &cobra.Command{
		Use:   "prune",
		Short: "Drop what was used least recently, or everything",
		Args:  args(0, 0),
		RunE: func(*cobra.Command, []string) error {
			return set.withCache(func(c *cache.Cache) error {
				freed, err := c.Prune(int64(keep))
				switch {
				case err != nil:
					return err
				case u.json:
					return u.printJSON(map[string]int64{"freed": freed})
				}
				u.printf("%s freed, %s kept\n", size(freed), size(c.Stats().DiskUsed))
				return nil
			})
		},
	}
	set.addCacheTo(c.Flags())
	c.Flags().Var(&keep, "keep", "how much to keep (default: nothing, so that everything is dropped)")
	return c
}

func newCacheVerifyCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:   "verify",
		Short: "Read all that is kept, and drop what is not what was stored",
		Args:  args(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return set.withCache(func(cc *cache.Cache) error { return u.cacheVerify(c.Context(), cc) })
		},
	}
	set.addCacheTo(c.Flags())
	return c
}

func (u *ui) cacheVerify(ctx context.Context, c *cache.Cache) error {
	bar := u.bar(c.Stats().DiskUsed, u.json)
	r, err := c.CheckDisk(ctx, func(n int64) { bar.Add64(n) })
	bar.Exit()
	if err != nil {
		return err
	}
	if u.json {
		err = u.printJSON(map[string]int64{"blobs": r.Blobs, "cells": r.Cells, "bad": r.Bad, "wrong": r.Wrong})
	} else {
		u.printf("%d blobs, %d cells: %d bad cells and %d wrong blobs were dropped\n", r.Blobs, r.Cells, r.Bad, r.Wrong)
	}
	if r.Bad+r.Wrong > 0 {
		return hinted{fmt.Errorf("%w: the disk cache held bytes that are not what was stored", sources.ErrCorrupt),
			"they will be fetched again; if this happens again, look at the disk"}
	}
	return err
}
