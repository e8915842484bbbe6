package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"weightfs/cache"
	"weightfs/fs/plan"
	"weightfs/sources"
	"weightfs/sources/release"
	"weightfs/transform"
)

// settings are the flags of every command that opens a release.
type settings struct {
	cacheDir  string
	cacheSize sizeFlag
	memory    sizeFlag
	tokenFile string
	presets   []string
	onError   onErrorFlag // of mount and serve
	// what a careful person does not permit
	insecureToken, privateRedirects bool
	requireSealed                   bool
	offline                         bool
}

const noCacheDir = "none"

func (s *settings) addTo(f *pflag.FlagSet) {
	s.addCacheTo(f)
	f.Var(&s.memory, "memory", "budget for everything in memory (default: a quarter of it, at most 2 GiB)")
	f.StringVar(&s.tokenFile, "token-file", "", "`FILE` with the Hub token (default: $HF_TOKEN, then where huggingface_hub keeps it)")
	f.StringArrayVar(&s.presets, "preset", nil, "`FILE` that describes a layout of expert blocks; it is experts/<its name>")
	f.BoolVar(&s.insecureToken, "insecure-token", false, "send the Hub token over plain http to another machine")
	f.BoolVar(&s.requireSealed, "require-sealed", false, "refuse a release with a file that was not sealed")
	f.BoolVar(&s.offline, "offline", false, "send no request: use what is on disk (HF_HUB_OFFLINE does the same for the Hub)")
	f.BoolVar(&s.privateRedirects, "allow-private-redirects", false, "follow a public server's redirects to private addresses")
}

// addCacheTo adds the flags of the disk cache, all that commands need which look after it.
func (s *settings) addCacheTo(f *pflag.FlagSet) {
	f.StringVar(&s.cacheDir, "cache-dir", "", "`DIR` of the disk cache (default $XDG_CACHE_HOME/weightfs; none: keep nothing on disk)")
	f.Var(&s.cacheSize, "cache-size", "most bytes kept on disk (default: half of the free space)")
}

// session is one run of a command that opens releases: they share connections, cache and memory.
type session struct {
	cache   *cache.Cache
	options *sources.Options
	views   []transform.View
	memory  budget
	sealed  bool  // only what is sealed may be read
	kept    int64 // bytes of decoded tiles that the reader of each release keeps
}

// budget is how the memory of --memory is shared out.
type budget struct {
	cells   int64 // of the cache
	kept    int64 // decoded tiles and rendered literals
	plans   int64 // plans of files that were opened
	replies int64 // to the kernel's requests
}

// heapSlack is what the program has on the Go heap beside its budget: indexes of headers, connections, garbage.
const heapSlack = 64 << 20

// share divides a budget: most of it is for cells, little for plans and replies, which need no more however large it is.
func share(memory int64) budget {
	b := budget{kept: memory / 8, plans: min(64<<20, memory/16), replies: min(64<<20, memory/16)}
	b.cells = memory - b.kept - b.plans - b.replies
	return b
}

// limitHeap has the collector keep to what is not cells, which are off the heap, unless the user's environment says otherwise.
func (b budget) limitHeap() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(b.kept + b.plans + b.replies + heapSlack)
	}
}

// open starts a session of releases at these places, of none if the cache alone is looked after. The caller closes it.
func (s *settings) open(places []place, log *slog.Logger) (*session, error) {
	dir, err := s.dir(places)
	if err != nil {
		return nil, err
	}
	views, err := s.views()
	if err != nil {
		return nil, err
	}
	o, err := s.network(log)
	if err != nil {
		return nil, err
	}
	b, err := s.budget()
	if err != nil {
		return nil, err
	}
	b.limitHeap()
	c, err := cache.New(cache.Options{
		Dir: dir, Size: int64(s.cacheSize), Memory: b.cells, Deadline: time.Duration(s.onError), Hub: o.HubCache, Log: log, Sealed: s.requireSealed,
	})
	if err != nil && dir != "" {
		err = hinted{err, cacheHint}
	}
	if err != nil {
		return nil, err
	}
	o.Keep = c
	return &session{sealed: s.requireSealed, cache: c, views: views, memory: b, kept: b.kept / int64(max(1, len(places))), options: o}, nil
}

// network is what remote sources are told. Paths are absolute: a daemon leaves the directory that it was started in.
func (s *settings) network(log *slog.Logger) (*sources.Options, error) {
	token, err := absolute(s.tokenFile)
	if err == nil && token != "" {
		_, err = flagFile("token-file", token)
	}
	if err != nil {
		return nil, err
	}
	hub, err := absolute(sources.HubCacheDir(os.Getenv))
	if err != nil {
		return nil, err
	}
	return &sources.Options{
		HubCache: hub, Offline: s.offline, TokenFile: token, InsecureToken: s.insecureToken, AllowPrivateRedirects: s.privateRedirects,
		UserAgent: "weightfs/" + version(), Log: log, Metrics: &sources.Metrics{},
	}, nil
}

// budget shares out the memory.
func (s *settings) budget() (budget, error) {
	if s.memory == 0 {
		return share(cache.DefaultMemory()), nil
	}
	b := share(int64(s.memory))
	if b.cells < cache.LeastMemory {
		return b, usageError{fmt.Sprintf("--memory %s is too little", &s.memory), "the least is " + size(cache.LeastMemory*4/3)}
	}
	return b, nil
}

// views are the views of every release, the user's presets among them.
func (s *settings) views() ([]transform.View, error) {
	views := transform.Views()
	for _, name := range s.presets {
		text, err := flagFile("preset", name)
		if err != nil {
			return nil, err
		}
		v, err := transform.ParsePreset(text)
		if err != nil {
			return nil, usageError{fmt.Sprintf("%s: %v", name, err), "weightfs' own presets, transform/presets/*.json in its source, show the form"}
		}
		views = append(views, v)
	}
	return views, nil
}

// dir is the cache directory, "" for none. Local files are read in place: who reads nothing else needs no cache directory.
func (s *settings) dir(places []place) (string, error) {
	remote := slices.ContainsFunc(places, func(p place) bool { return !p.local })
	switch {
	case s.cacheDir == noCacheDir, len(places) > 0 && !remote:
		return "", nil
	case s.cacheDir == "":
		dir, err := cache.DefaultDir()
		if err != nil {
			err = hinted{err, cacheHint}
		}
		return dir, err
	}
	return filepath.Abs(s.cacheDir)
}

const cacheHint = "--cache-dir DIR names another place; --cache-dir none goes on with nothing kept on disk"

func (s *session) Close() error {
	err := s.cache.Close()
	s.options.Close()
	return err
}

// opened is one release, listed and pinned; its headers are fetched when something needs them.
type opened struct {
	place
	cache   *cache.Cache
	views   []transform.View
	listing *sources.Listing
	files   *cache.Files
	reader  *plan.Reader
	release func(context.Context) (*release.Release, error)
	root    plan.Dir
}

// openRelease lists the release, which pins it.
func (s *session) openRelease(ctx context.Context, p place, extra ...plan.Node) (*opened, error) {
	src, err := p.open(s.options)
	if err != nil {
		return nil, err
	}
	l, err := src.List(ctx)
	if errors.Is(err, sources.ErrTemporary) {
		err = hinted{err, "--offline uses what an earlier run, or huggingface_hub, left on disk"}
	}
	if err != nil {
		return nil, err
	}
	o := &opened{place: p, cache: s.cache, views: s.views, listing: l, files: s.cache.Release(src, l)}
	o.reader = plan.NewReader(o.files, s.kept)
	o.release = once(func(ctx context.Context) (*release.Release, error) {
		r, err := release.Open(ctx, l, o.files)
		if err == nil {
			transform.SetParts(ctx, o.root, r)
		}
		return r, err
	})
	o.root = transform.TreeOf(s.views, l, o.release, extra...)
	if !s.sealed {
		return o, nil
	}
	if err = o.files.OpenAll(ctx); errors.Is(err, cache.ErrUnsealed) {
		err = hinted{err, "weightfs seal " + p.arg + " reads the release once and seals it"}
	}
	return o, err
}

// localRoot is the directory that the files of a local release are in, "" for a release that is elsewhere.
func (o *opened) localRoot() string {
	u, err := url.Parse(o.listing.Name)
	if err != nil || u.Scheme != "file" {
		return ""
	}
	if st, err := os.Stat(u.Path); err == nil && !st.IsDir() {
		return filepath.Dir(u.Path)
	}
	return u.Path
}

// with is what most commands do: fn with one release, in a session of its own.
func (s *settings) with(ctx context.Context, source string, fn func(context.Context, *opened) error) error {
	session, o, err := s.openOne(ctx, source)
	if err != nil {
		return err
	}
	defer session.Close()
	return fn(ctx, o)
}

// openOne opens one release in a session of its own, which the caller closes.
func (s *settings) openOne(ctx context.Context, arg string) (*session, *opened, error) {
	p, err := parseSource(arg)
	if err != nil {
		return nil, nil, err
	}
	session, err := s.open([]place{p}, nil)
	if err != nil {
		return nil, nil, err
	}
	o, err := session.openRelease(ctx, p)
	if err != nil {
		session.Close()
		return nil, nil, err
	}
	return session, o, nil
}

// once remembers the first success of fn; a failure is told and forgotten. Callers wait for each other as long as their context lasts.
func once[T any](fn func(context.Context) (T, error)) func(context.Context) (T, error) {
	var mu sync.Mutex // guards done and value
	var done bool
	var value T
	known := func() (T, bool) {
		mu.Lock()
		defer mu.Unlock()
		return value, done
	}
	gate := make(chan struct{}, 1)
	return func(ctx context.Context) (T, error) {
		if v, ok := known(); ok {
			return v, nil
		}
		select {
		case gate <- struct{}{}:
			defer func() { <-gate }()
		case <-ctx.Done():
			var zero T
			return zero, context.Cause(ctx)
		}
		if v, ok := known(); ok {
			return v, nil
		}
		v, err := fn(ctx)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			value, done = v, true
		}
		return v, err
	}
}
