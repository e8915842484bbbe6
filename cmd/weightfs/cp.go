package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"

	"weightfs/fs/plan"
	"weightfs/sources"
	"weightfs/sources/release"
)

func newCpCommand(u *ui) *cobra.Command {
	var set settings
	jobs := jobsFlag(4)
	var quiet bool
	c := &cobra.Command{
		Use:   "cp SOURCE PATH [DEST]",
		Short: "Copy a file or directory of the tree: a conversion that streams",
		Long: `Copy a file or directory of the tree: a conversion that streams. Files are written in parallel under DEST; a directory's files go into
DEST (default: the directory's name), a file goes into DEST if that is a directory (default: here), else becomes DEST.

A copy that was stopped is taken up by the same command: parts that are there are checked and kept. One that
was finished is made anew.`,
		Example: "  weightfs cp hf://Qwen/Qwen3-30B-A3B-FP8 bf16 ./qwen-bf16\n  weightfs cp ./model experts/native/blocks/L010/E003.bin",
		Args:    args(2, 3),
		RunE: func(c *cobra.Command, args []string) error {
			return set.with(c.Context(), args[0], func(ctx context.Context, o *opened) error {
				return u.cp(ctx, newCopier(o, int(jobs)), cleanPath(args[1]), append(args, "")[2], quiet)
			})
		},
	}
	set.addTo(c.Flags())
	c.Flags().VarP(&jobs, "jobs", "j", "segments of 8 MiB copied at once, or of small files up to 16 times as many")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "no progress")
	return c
}

// jobsFlag is how many segments are copied at once.
type jobsFlag int

// mostJobs has 8 GiB in memory.
const mostJobs = 1024

func (j *jobsFlag) String() string { return strconv.Itoa(int(*j)) }

func (j *jobsFlag) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostJobs {
		return fmt.Errorf("%q is not a number of segments, at least 1 and at most %d", text, mostJobs)
	}
	*j = jobsFlag(n)
	return nil
}

func (*jobsFlag) Type() string { return "N" }

func (u *ui) cp(ctx context.Context, c *copier, p, dest string, quiet bool) error {
	files, err := c.plan(ctx, p, dest)
	if err != nil {
		return err
	}
	c.bar = u.bar(c.total, quiet)
	err = c.run(ctx, files)
	c.bar.Exit()
	if err != nil {
		return hinted{err, copyHint(err)}
	}
	if !quiet {
		u.notef("copied %s, %s (%s of it was there)", counted(len(files), "file"), size(c.total), size(c.kept.Load()))
	}
	if p == "release" {
		return c.whole(ctx)
	}
	return nil
}

// whole fails if the release that was copied lacks a shard that its index names.
func (c *copier) whole(ctx context.Context) error {
	l := c.o.listing
	missing, err := release.Missing(ctx, l, c.o.files)
	if err != nil || len(missing) == 0 {
		return err
	}
	first := missing[0]
	if i := slices.IndexFunc(l.Hidden, func(h sources.Hidden) bool { return h.Path == first }); i >= 0 {
		first += " (" + l.Hidden[i].Reason + ")"
	}
	err = fmt.Errorf("the copy is incomplete, %s of its index missing: %s: %w", counted(len(missing), "shard"), first, sources.ErrNotFound)
	return hinted{err, "all other files are copied; when the source has what is missing, the same command adds it"}
}

// copyHint is what to do about a copy that failed.
func copyHint(err error) string {
	if errors.Is(err, sources.ErrOffline) {
		return hint(err)
	}
	for _, e := range []error{unix.ENOTDIR, unix.EISDIR, unix.EROFS, unix.EACCES, unix.EPERM, unix.ENOENT} {
		var at *fs.PathError
		if errors.As(err, &at) && errors.Is(at, e) {
			return "nothing can be written there; name another DEST"
		}
	}
	return "run the same command again: what was copied is kept"
}

// progress is a bar on a terminal, or none.
type progress struct {
	*progressbar.ProgressBar
	out io.Writer // nil: none is shown
}

// Exit leaves the bar as it is and ends its line, if it was shown.
func (p *progress) Exit() error {
	err := p.ProgressBar.Exit()
	if p.out != nil && p.IsStarted() {
		fmt.Fprintln(p.out)
		p.out = nil
	}
	return err
}

// bar shows progress in bytes on stderr, if that is a terminal.
func (u *ui) bar(total int64, quiet bool) *progress {
	if f, ok := u.err.(*os.File); quiet || !ok || !isTerminal(f) {
		return &progress{ProgressBar: progressbar.DefaultBytesSilent(total)}
	}
	return &progress{progressbar.NewOptions64(total, progressbar.OptionSetWriter(u.err), progressbar.OptionShowBytes(true),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionThrottle(1e8)), u.err}
}

func isTerminal(f *os.File) bool {
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}

// segment is the unit of copying: read in one call, written in one call, recorded with its checksum.
const segment = 8 << 20

// smallest is what a segment counts at least for when segments are copied at once: a short one is a round trip too.
const smallest = segment / 16

// copier copies files of a tree.
type copier struct {
	o     *opened
	room  *semaphore.Weighted // bytes of segments that are copied at once
	free  chan []byte         // memory of whole segments
	bar   *progress
	total int64
	kept  atomic.Int64 // bytes that were there
}

// newCopier makes a copier of as many bytes at once as jobs segments have.
func newCopier(o *opened, jobs int) *copier {
	return &copier{o: o, room: semaphore.NewWeighted(int64(jobs) * segment), free: make(chan []byte, jobs)}
}

// copyFile is one file to copy.
type copyFile struct {
	path, dest string
	node       plan.Node
	plan       *plan.Plan
	part       *partFile
	left       atomic.Int64 // segments
}

// plan lists the files to copy and makes sure that they fit.
func (c *copier) plan(ctx context.Context, p, dest string) ([]*copyFile, error) {
	n, err := c.o.find(ctx, p)
	if err != nil {
		return nil, err
	}
	base := p
	if n.Dir == nil {
		base = path.Dir(p)
		if info, err := os.Stat(dest); dest == "" || strings.HasSuffix(dest, "/") || err == nil && info.IsDir() {
			dest = filepath.Join(dest, path.Base(p))
		}
	} else if dest == "" {
		dest = path.Base(path.Join(c.o.dir, p))
	}
	var files []*copyFile
	err = walk(ctx, n, p, func(file string, x plan.Node) error {
		if x.Live != nil {
			return nil
		}
		to := dest
		if n.Dir != nil {
			rel, err := filepath.Rel("/"+base, "/"+file)
			if err != nil || !filepath.IsLocal(rel) {
				return fmt.Errorf("%s is no path to copy to", file)
			}
			to = filepath.Join(dest, rel)
		}
		files = append(files, &copyFile{path: file, dest: to, node: x})
		c.total += x.Size
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := c.spares(files); err != nil {
		return nil, err
	}
	return files, c.fits(dest, files)
}

// spares refuses to write over the files of a local source.
func (c *copier) spares(files []*copyFile) error {
	root := c.o.localRoot()
	if root == "" {
		return nil
	}
	type id struct{ dev, ino uint64 }
	idOf := func(name string) (id, bool) {
		var st unix.Stat_t
		err := unix.Stat(name, &st)
		return id{st.Dev, st.Ino}, err == nil
	}
	own := map[id]bool{}
	for _, e := range c.o.listing.Files {
		if x, ok := idOf(filepath.Join(root, filepath.FromSlash(e.Path))); ok {
			own[x] = true
		}
	}
	for _, f := range files {
		if x, ok := idOf(f.dest); ok && own[x] {
			return usageError{f.dest + " is a file of the source itself", "name another DEST; nothing was copied"}
		}
	}
	return nil
}

// fits compares what is to be written with the free space.
func (c *copier) fits(dest string, files []*copyFile) error {
	var space unix.Statfs_t
	dir := filepath.Dir(filepath.Clean(dest))
	for unix.Statfs(dir, &space) != nil {
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	need := c.total
	for _, f := range files {
		for _, name := range []string{f.dest, partName(f.dest)} {
			var st unix.Stat_t
			if unix.Stat(name, &st) == nil {
				need -= st.Blocks * 512
			}
		}
	}
	if free := int64(space.Bavail) * space.Bsize; need > free {
		return hinted{fmt.Errorf("%s to write, %s free at %s", size(need), size(free), dir), "mount instead of copying: a view takes no space"}
	}
	return nil
}

// run copies the files, as many segments at once as there is room for.
func (c *copier) run(ctx context.Context, files []*copyFile) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, f := range files {
		if err := c.start(ctx, f, g); err != nil {
			return cmp.Or(g.Wait(), err)
		}
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for _, f := range files {
		if err := f.part.forget(); err != nil {
			return err
		}
	}
	return nil
}

// start opens one file and gives its segments to g.
func (c *copier) start(ctx context.Context, f *copyFile, g *errgroup.Group) (err error) {
	if f.plan, err = f.node.Open(ctx); err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	key, err := c.key(f.plan)
	if err != nil {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if f.part, err = openPart(f.dest, key, f.plan.Size); err != nil {
		return err
	}
	missing := f.part.missing()
	f.left.Store(int64(len(missing)))
	there := f.plan.Size
	for _, i := range missing {
		there -= f.part.len(i)
	}
	c.kept.Add(there)
	c.bar.Add64(there)
	if len(missing) == 0 {
		return f.part.finish()
	}
	for _, i := range missing {
		n := max(f.part.len(i), smallest)
		if err := c.room.Acquire(ctx, n); err != nil {
			return err
		}
		g.Go(func() error {
			defer c.room.Release(n)
			return c.copy(ctx, f, i)
		})
	}
	return nil
}

// copy copies one segment; the last one finishes the file.
func (c *copier) copy(ctx context.Context, f *copyFile, i int64) error {
	buf := c.buffer(f.part.len(i))
	defer c.release(buf)
	if _, err := c.o.reader.ReadAt(ctx, f.plan, buf, i*segment); err != nil && err != io.EOF {
		return fmt.Errorf("%s: %w", f.path, err)
	}
	if err := f.part.write(i, buf); err != nil {
		return err
	}
	c.bar.Add(len(buf))
	if f.left.Add(-1) == 0 {
		return f.part.finish()
	}
	return nil
}

// buffer is memory for n bytes of a segment. That of whole segments is used again: fresh memory costs as much as decoding into it.
func (c *copier) buffer(n int64) []byte {
	if n == segment {
		select {
		case b := <-c.free:
			return b
		default:
		}
	}
	return make([]byte, n)
}

func (c *copier) release(b []byte) {
	if len(b) == segment {
		c.free <- b // there are as many as have room
	}
}

// key names the content of a file: equal keys mean equal bytes.
func (c *copier) key(p *plan.Plan) ([32]byte, error) {
	digest, err := plan.Digest(p, c.o.filePath)
	l := c.o.listing
	return sha256.Sum256(fmt.Appendf(nil, "%x %q %q %d", digest, l.Name, l.Revision, l.Time.UnixNano())), err
}
