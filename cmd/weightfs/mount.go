package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"weightfs/fs"
	"weightfs/fs/plan"
)

// mountFlags are what mount can be told.
type mountFlags struct {
	settings
	view       string
	allowOther bool
	warm       []string
	pass       passFlag
	daemon     bool
	readyFD    int // of a daemon: where it says that the mount answers, or why not; 0 for none
}

func newMountCommand(u *ui) *cobra.Command {
	var f mountFlags
	c := &cobra.Command{
		Use:   "mount SOURCE... DIR",
		Short: "Mount releases and their views on a directory",
		Long: `Mount releases and their views on a directory, in the foreground: interrupt it, or weightfs umount DIR, to end it. Several sources stand
in one directory each, org/name or the last element of the path or URL.

Nothing is fetched but the list of files and the headers, until something is read.`,
		Example: `  weightfs mount hf://Qwen/Qwen3-30B-A3B-FP8 ~/qwen
  weightfs mount --daemon --view bf16 ./model-fp8 /mnt/m
  weightfs mount hf://org/a hf://org/b@v1.0 /mnt/models`,
		Args: args(2, -1),
		RunE: func(c *cobra.Command, args []string) error {
			sources, dir := args[:len(args)-1], args[len(args)-1]
			if err := checkView(f.view); err != nil && c.Flags().Changed("view") {
				return err
			}
			if f.daemon {
				return f.runDaemon(c.Context(), u, sources, dir)
			}
			return f.run(c.Context(), u, sources, dir)
		},
	}
	f.addTo(c.Flags())
	c.Flags().Var(&f.onError, "on-error", "a read whose source fails for the moment waits so long (soft:60s), or until the reader is killed (hard)")
	c.Flags().StringVar(&f.view, "view", "", "mount one `PATH` of the tree at the root: bf16, experts/native; release is the plain repository")
	c.Flags().BoolVar(&f.allowOther, "allow-other", false, "let other users in; they read with your token")
	c.Flags().StringArrayVar(&f.warm, "warm", nil, "`GLOB` of files whose content is fetched into the cache behind the mount")
	c.Flags().Var(&f.pass, "passthrough", "let the kernel read complete local files by itself, where it can (root, Linux 6.9)")
	c.Flags().BoolVar(&f.daemon, "daemon", false, "return once the mount answers, and go on in the background")
	c.Flags().IntVar(&f.readyFD, "ready-fd", 0, "")
	c.Flags().MarkHidden("ready-fd")
	return c
}

// run mounts and serves until the mount is gone.
func (f *mountFlags) run(ctx context.Context, u *ui, args []string, dir string) error {
	// From here on every signal ends ctx, which ends what comes before the mount, or is found in stop by what comes after.
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	tell := f.teller()
	if ctx.Err() != nil {
		return tell(context.Cause(ctx))
	}
	m, err := f.prepare(ctx, u, args)
	if err != nil {
		return tell(err)
	}
	defer m.close()
	if f.allowOther {
		m.log.Warn(warnOthers)
	}
	for _, o := range m.releases {
		if err := o.wouldHide(dir); err != nil {
			return tell(err)
		}
	}
	mounted, err := m.fs.Mount(dir, fs.MountOptions{Name: m.name(), AllowOther: f.allowOther, NoPassthrough: f.pass.off, Replies: m.session.memory.replies})
	if err != nil {
		return tell(err)
	}
	if f.readyFD > 0 {
		os.Chdir("/") // the directory that the daemon was started in must not stay in use
	} else {
		u.notef("%s is mounted on %s; interrupt this, or weightfs umount %s, to end it", m.name(), mounted.Dir(), mounted.Dir())
	}
	tell(nil)
	m.fetchBehind(f.warm)
	return serveMount(mounted, stop, m.log)
}

// wouldHide refuses to mount on a directory that a local source is, or is in: the mount would hide what it reads.
func (o *opened) wouldHide(dir string) error {
	root := o.localRoot()
	at, err := os.Stat(dir)
	if root == "" || err != nil {
		return nil
	}
	if real, err := filepath.EvalSymlinks(root); err == nil {
		root = real
	}
	for p := root; ; p = filepath.Dir(p) {
		if st, err := os.Stat(p); err == nil && os.SameFile(st, at) {
			return usageError{fmt.Sprintf("a mount on %s would hide its own source, %s", dir, root), "name another DIR"}
		}
		if p == filepath.Dir(p) {
			return nil
		}
	}
}

// checkView refuses a path that is none of the tree's below its root.
func checkView(view string) error {
	if p := strings.Trim(path.Clean(view), "/"); p != "" && p != "." && p != ".." && !strings.HasPrefix(p, "../") {
		return nil
	}
	return usageError{fmt.Sprintf("--view %q is no path below the root", view), "write one as weightfs ls shows it: bf16, experts/native; without --view the whole tree is mounted"}
}

// warnOthers says what --allow-other means.
const warnOthers = "other users of this machine can read the mount, whatever your token opened included"

// teller tells the process that waits for a daemon that the mount answers (nil) or why it does not. It returns what it was told.
func (f *mountFlags) teller() func(error) error {
	if f.readyFD == 0 {
		return func(err error) error { return err }
	}
	pipe := os.NewFile(uintptr(f.readyFD), "ready")
	return func(err error) error {
		defer pipe.Close()
		json.NewEncoder(pipe).Encode(failureOf(err))
		return err
	}
}

// serveMount waits until the mount is gone. The first signal unmounts as soon as nobody uses the mount, the second takes it out of
// the way at once, the third ends whoever still reads.
func serveMount(m *fs.Mount, stop <-chan os.Signal, log *slog.Logger) error {
	gone := make(chan struct{})
	go func() { m.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-stop:
	}
	for told := false; ; told = true {
		elsewhere, err := m.Leave()
		switch {
		case err == nil:
			return serveElsewhere(m, elsewhere, gone, stop, log)
		case !errors.Is(err, fs.ErrBusy):
			return err
		case !told:
			log.Warn("files of the mount are in use: it ends when they are closed; a second signal takes it away now", "dir", m.Dir(), "because", err.Error())
		}
		select {
		case <-gone:
			return nil
		case <-stop:
			if err := m.Detach(); err != nil {
				return err
			}
			log.Warn("the mount is out of the tree: files that are open are served until they are closed; another signal ends that now", "dir", m.Dir())
			select {
			case <-gone:
			case <-stop:
			}
			return nil
		case <-time.After(time.Second):
		}
	}
}

// serveElsewhere waits until a mount that is out of the tree has ended: where other mount namespaces have copies of it, they are served until
// they end or another signal comes.
func serveElsewhere(m *fs.Mount, elsewhere []string, gone <-chan struct{}, stop <-chan os.Signal, log *slog.Logger) error {
	if len(elsewhere) > 0 {
		log.Warn("other mount namespaces have copies of the mount: it ends when they do; another signal ends it now", "dir", m.Dir(), "processes", strings.Join(elsewhere, ", "))
	}
	select {
	case <-gone:
	case <-stop:
	}
	return nil
}

// mounting is what a mount or a server is made of.
type mounting struct {
	session  *session
	releases []*opened
	fs       *fs.FS
	log      *slog.Logger
	view     string
	deadline time.Duration
	stop     context.CancelFunc // ends what runs behind
}

// prepare lists every source, which pins it, and joins the trees.
func (f *mountFlags) prepare(ctx context.Context, u *ui, args []string) (*mounting, error) {
	places, err := parseSources(args)
	if err != nil {
		return nil, err
	}
	var to io.Writer = u.err
	if f.readyFD > 0 {
		to = nil
	}
	log := fs.NewLog(to, slog.LevelInfo, 0)
	m := &mounting{log: log.Logger(), view: cleanPath(f.view), deadline: time.Duration(f.onError), stop: func() {}}
	if m.session, err = f.settings.open(places, m.log); err != nil {
		return nil, err
	}
	if err := m.open(ctx, places, log); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *mounting) open(ctx context.Context, places []place, log *fs.Log) error {
	m.releases = make([]*opened, len(places))
	trees := make([]*fs.Tree, len(places))
	g, gctx := errgroup.WithContext(ctx)
	for i, p := range places {
		g.Go(func() (err error) {
			if m.releases[i], err = m.session.openRelease(gctx, p); err == nil {
				trees[i], err = m.releases[i].tree(gctx, m.view)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, t := range trees {
		if len(trees) > 1 {
			t.At = places[i].dir
		}
		if alike := m.releases[i].listing.Alike(); len(alike) > 0 {
			m.log.Warn("names of files differ only in case or Unicode form: a file system that does not tell them apart has room for one of each", "source", t.Source, "pairs", len(alike), "one", alike[0][0], "other", alike[0][1])
		}
	}
	var err error
	m.fs, err = fs.New(fs.Config{
		Trees: trees, Control: m.control(), HideControl: m.view != "", Log: log, Counters: m.counters, Deadline: m.deadline, Plans: m.session.memory.plans,
	})
	return err
}

// tree is the release as a door wants it, with a view of it at the root if one is asked for.
func (o *opened) tree(ctx context.Context, view string) (*fs.Tree, error) {
	l := o.listing
	t := &fs.Tree{
		Root: o.root, Reader: o.reader, Source: l.Name, Revision: l.Revision, Time: l.Time, Files: int64(len(l.Files)),
		Complete: l.Complete, FileName: o.filePath, Backings: backings{o.files, l},
	}
	for _, f := range l.Files {
		t.Bytes += f.Size
	}
	if view == "" {
		return t, nil
	}
	n, err := o.find(ctx, view)
	if err != nil {
		return nil, err
	}
	if n.Dir == nil {
		return nil, usageError{fmt.Sprintf("--view %s is a file", view), "a view is a directory of the tree: weightfs ls shows them"}
	}
	t.Root = n.Dir
	return t, nil
}

// fetchBehind starts to open the releases, so that views are there when somebody looks, and then to fill the cache. Failures come back
// to who looks.
func (m *mounting) fetchBehind(globs []string) {
	if m.view == "release" && len(globs) == 0 {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.stop = cancel
	for _, o := range m.releases {
		go func() {
			if err := o.makeViews(ctx); err != nil && ctx.Err() == nil {
				m.log.Warn("there are no views", "source", o.listing.Name, "because", err.Error())
			}
			if err := o.warm(ctx, globs); err != nil && ctx.Err() == nil {
				m.log.Warn("the cache was not filled", "source", o.listing.Name, "because", err.Error())
			}
		}()
	}
}

// makeViews opens the release and makes its views. The verdict that it is bad is an error here, where the root shows a README instead.
func (o *opened) makeViews(ctx context.Context) error {
	if _, err := o.release(ctx); err != nil {
		return err
	}
	_, err := o.root.Lookup(ctx, "README.md")
	return err
}

func (m *mounting) close() error {
	m.stop()
	return m.session.Close()
}

// name is the mount's device in the mount table: hf:org/name@sha12.
func (m *mounting) name() string {
	if len(m.releases) > 1 {
		return fmt.Sprintf("weightfs:%d-sources", len(m.releases))
	}
	l := m.releases[0].listing
	name := strings.Replace(l.Name, "hf://", "hf:", 1)
	if l.Revision != "" {
		name, _, _ = strings.Cut(name, "@")
		name += "@" + l.Revision[:min(12, len(l.Revision))]
	}
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`,\"'`, r) {
			return '_'
		}
		return r
	}, name)
}

func (m *mounting) counters() fs.Counters {
	s := m.session.cache.Stats()
	return fs.Counters{
		Fetched: s.BytesFetched, Cached: s.BytesDisk, Memory: s.MemoryUsed, MemoryLimit: s.Memory,
		Detail: s, Network: m.session.options.Status(),
	}
}

// summaryWait is how long a look at .weightfs/summary.* waits for headers.
const summaryWait = 30 * time.Second

// control is the files of .weightfs that say what is mounted: inspect's output, one for each release.
func (m *mounting) control() []plan.Node {
	render := func(as func([]*summary) ([]byte, error)) func() []byte {
		done := once(func(ctx context.Context) ([]byte, error) {
			var all []*summary
			for _, o := range m.releases {
				s, err := o.summarise(ctx)
				if err != nil {
					return nil, err
				}
				all = append(all, s)
			}
			return as(all)
		})
		return func() []byte {
			ctx, cancel := context.WithTimeout(context.Background(), summaryWait)
			defer cancel()
			b, err := done(ctx)
			if err != nil {
				b, _ = json.Marshal(failureOf(err))
			}
			return b
		}
	}
	return []plan.Node{
		{Name: "summary.json", Live: render(summariesJSON)},
		{Name: "summary.txt", Live: render(summariesText)},
		{Name: metricsName, Live: m.metrics},
	}
}

// summariesJSON is one object, or a list of them in a mount of several sources.
func summariesJSON(all []*summary) ([]byte, error) {
	var v any = all
	if len(all) == 1 {
		v = all[0]
	}
	return indentedJSON(v)
}

func summariesText(all []*summary) ([]byte, error) {
	var texts []string
	for _, s := range all {
		texts = append(texts, s.text())
	}
	return []byte(strings.Join(texts, "\n")), nil
}
