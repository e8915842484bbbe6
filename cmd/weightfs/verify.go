package main

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spf13/cobra"

	"weightfs/fs/plan"
	"weightfs/sources"
)

func newVerifyCommand(u *ui) *cobra.Command {
	var set settings
	c := &cobra.Command{
		Use:   "verify SOURCE [PATH...]",
		Short: "Read files of the release and compare them with the hashes that the source has",
		Long: `Read files of the release, all or those at and below each PATH, through the cache, and compare them with the hashes that the source has: the
SHA-256 of large files on the Hub, git's hash of small ones. A file without one is named.`,
		Example: "  weightfs verify hf://Qwen/Qwen3-30B-A3B-FP8 release/tokenizer.json",
		Args:    args(1, -1),
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error {
				return (&verifier{u: u, o: o}).verify(ctx, orRelease(args[1:]))
			})
		},
	}
	set.addTo(c.Flags())
	return c
}

type verifier struct {
	u                *ui
	o                *opened
	right, wrong, no int
}

func (v *verifier) verify(ctx context.Context, paths []string) error {
	err := v.o.releaseFiles(ctx, paths, func(name string, i int, n plan.Node) error { return v.file(ctx, name, i, n) })
	if err != nil {
		return err
	}
	if !v.u.json {
		v.u.notef("%d files are right, %d wrong, %d have no hash to compare with", v.right, v.wrong, v.no)
	}
	if v.wrong > 0 {
		return fmt.Errorf("%w: %d files differ from the hashes that the source has", sources.ErrCorrupt, v.wrong)
	}
	if v.right == 0 {
		return hinted{errors.New("nothing was compared"), "the Hub has hashes of its files; directories and plain HTTP servers have none"}
	}
	return nil
}

// verdict is a file as verify --json prints it.
type verdict struct {
	Path string `json:"path"`
	Want string `json:"want,omitempty"` // sha256:..., git:..., nothing if the source has none
	Got  string `json:"got,omitempty"`
	OK   bool   `json:"ok"`
}

// file compares file i of the release.
func (v *verifier) file(ctx context.Context, name string, i int, n plan.Node) error {
	p, err := n.Open(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	entry := v.o.listing.Files[i]
	x := verdict{Path: name}
	kind, h := "", hash.Hash(nil)
	switch {
	case entry.SHA256 != "":
		kind, x.Want, h = "sha256:", "sha256:"+entry.SHA256, sha256.New()
	case entry.GitOID != "":
		kind, x.Want, h = "git:", "git:"+entry.GitOID, sha1.New()
		fmt.Fprintf(h, "blob %d\x00", entry.Size)
	default:
		v.no++
		return v.print(x)
	}
	in := struct{ io.Reader }{&content{ctx: ctx, reader: v.o.reader, plan: p}}
	if _, err := io.CopyBuffer(h, in, make([]byte, 4<<20)); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	x.Got = kind + hex.EncodeToString(h.Sum(nil))
	x.OK = x.Got == x.Want
	if x.OK {
		v.right++
	} else {
		v.wrong++
	}
	return v.print(x)
}

func (v *verifier) print(x verdict) error {
	switch {
	case v.u.json:
		return v.u.printLine(x)
	case x.Want == "":
		v.u.printf("no hash  %s\n", x.Path)
	case x.OK:
		v.u.printf("right    %s\n", x.Path)
	default:
		v.u.printf("WRONG    %s: %s, the source says %s\n", x.Path, x.Got, x.Want)
	}
	return nil
}
