package main

import (
	"context"
	"fmt"

	"weightfs/cache"
	"weightfs/fs"
	"weightfs/sources"
)

// backings are the local files of a release, as a mount wants them.
type backings struct {
	files   *cache.Files
	listing *sources.Listing
}

func (b backings) Lend(ctx context.Context, file int) (fs.Backing, bool) {
	fd, done, ok := b.files.Lend(ctx, file)
	return fs.Backing{Fd: fd, Size: b.listing.Files[file].Size, Done: done}, ok
}

func (b backings) Completes(file int) bool { return b.files.Completes(file) }

// passFlag is --passthrough: "auto", which is where it can be had, or "off".
type passFlag struct{ off bool }

func (p *passFlag) String() string {
	if p.off {
		return "off"
	}
	return "auto"
}

func (p *passFlag) Set(text string) error {
	if text != "auto" && text != "off" {
		return fmt.Errorf("%q is neither auto nor off", text)
	}
	p.off = text == "off"
	return nil
}

func (*passFlag) Type() string { return "auto|off" }
