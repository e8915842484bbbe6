package sources_test

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

func TestHubCacheDir(t *testing.T) {
	for _, c := range []struct {
		env  []string
		want string
	}{
		{[]string{"HF_HUB_CACHE", "/a", "HUGGINGFACE_HUB_CACHE", "/b", "HF_HOME", "/c"}, "/a"},
		{[]string{"HUGGINGFACE_HUB_CACHE", "/b", "HF_HOME", "/c"}, "/b"},
		{[]string{"HF_HOME", "/c", "XDG_CACHE_HOME", "/d"}, "/c/hub"},
		{[]string{"XDG_CACHE_HOME", "/d", "HOME", "/e"}, "/d/huggingface/hub"},
		{[]string{"HOME", "/e"}, "/e/.cache/huggingface/hub"},
		{[]string{"HOME", "/e", "HF_HOME", "~/f"}, "/e/f/hub"},
		{[]string{"HOME", "/e", "HF_HUB_CACHE", "~/g"}, "/e/g"},
		{[]string{"HOME", ""}, ""},
	} {
		if got := sources.HubCacheDir(quietEnv(t, c.env...)); got != c.want {
			t.Errorf("%q: %q, want %q", c.env, got, c.want)
		}
	}
}

// hubCache is a cache of huggingface_hub that a test writes: the repository org/small.
type hubCache struct {
	t    *testing.T
	dir  string
	repo string
}

func newHubCache(t *testing.T) hubCache {
	dir := t.TempDir()
	return hubCache{t, dir, filepath.Join(dir, "models--org--small")}
}

func (c hubCache) write(name, text string) {
	c.t.Helper()
	put(c.t, filepath.Join(c.repo, name), []byte(text))
}

// download is what is there after a download of a file: the blob and the snapshot's link to it, or the snapshot's file alone.
func (c hubCache) download(commit string, f sourcetest.File, links bool) {
	c.t.Helper()
	name := filepath.Join("snapshots", commit, f.Path)
	content := f.Slice(0, f.Size)
	if !links {
		c.write(name, string(content))
		return
	}
	c.write("blobs/"+blobName(f), string(content))
	c.link(name, blobName(f))
}

func (c hubCache) link(name, blob string) {
	c.t.Helper()
	at := filepath.Join(c.repo, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Symlink(strings.Repeat("../", strings.Count(name, "/"))+"blobs/"+blob, at); err != nil {
		c.t.Fatal(err)
	}
}

func blobName(f sourcetest.File) string {
	if strings.HasSuffix(f.Path, ".safetensors") {
		return f.SHA256()
	}
	return gitOID(f.Slice(0, f.Size))
}

func gitOID(p []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(p)), p...))
	return hex.EncodeToString(sum[:])
}

// tree writes trees/<commit>.json.
func (c hubCache) tree(commit string, version int, truth sourcetest.Truth) {
	files := map[string]map[string]any{}
	for _, f := range truth {
		e := map[string]any{"size": f.Size, "blob_id": gitOID(f.Slice(0, min(f.Size, 100)))}
		if strings.HasSuffix(f.Path, ".safetensors") {
			e["lfs_sha256"], e["lfs_size"], e["xet_hash"] = f.SHA256(), f.Size, strings.Repeat("7", 64)
		} else {
			e["blob_id"] = blobName(f)
		}
		files[f.Path] = e
	}
	text, err := json.Marshal(map[string]any{"files": files, "format_version": version, "new": []int{1}})
	if err != nil {
		c.t.Fatal(err)
	}
	c.write("trees/"+commit+".json", string(text))
}

// offline is a source that may send nothing: a request would fail, as nothing listens there.
func offline(t *testing.T, cache, revision string, keep sources.Keeper) sources.Source {
	t.Helper()
	o := options(t)
	o.Endpoint, o.HubCache, o.Offline, o.Keep = "http://127.0.0.1:1", cache, true, keep
	src, err := sources.Hub("org/small", revision, o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

const otherCommit = "76543210fedcba9876543210fedcba9876543210"

// TestHubCacheListing (T39): what huggingface_hub left on disk is a listing: with the commit that its refs name, of all files if it kept the
// tree, else of those that were downloaded, with links or without.
func TestHubCacheListing(t *testing.T) {
	truth := sourcetest.Small()
	whole := func(c hubCache) { c.tree(sourcetest.Commit, 1, truth) }
	for _, c := range []struct {
		name     string
		revision string
		make     func(c hubCache)
		files    int  // of the truth, from the first
		hashes   bool // all of them are known
		complete bool
		hidden   int
	}{
		{name: "tree", make: whole, files: len(truth), hashes: true, complete: true},
		{name: "tree and a few files", files: len(truth), hashes: true, complete: true, make: func(c hubCache) {
			whole(c)
			c.download(sourcetest.Commit, truth[0], true)
		}},
		{name: "tree of another form", files: 2, hashes: true, make: func(c hubCache) {
			c.tree(sourcetest.Commit, 2, truth)
			c.download(sourcetest.Commit, truth[0], true)
			c.download(sourcetest.Commit, truth[1], true)
		}},
		{name: "torn tree", files: 1, hashes: true, make: func(c hubCache) {
			c.write("trees/"+sourcetest.Commit+".json", `{"format_version": 1, "files": {"a": {"size": 1`)
			c.download(sourcetest.Commit, truth[0], true)
		}},
		{name: "tree without a list", files: 1, hashes: true, make: func(c hubCache) {
			c.write("trees/"+sourcetest.Commit+".json", `{"format_version": 1, "file": {}}`)
			c.download(sourcetest.Commit, truth[0], true)
		}},
		{name: "no links", files: len(truth), make: func(c hubCache) {
			for _, f := range truth {
				c.download(sourcetest.Commit, f, false)
			}
		}},
		{name: "links", files: len(truth), hashes: true, make: func(c hubCache) {
			for _, f := range truth {
				c.download(sourcetest.Commit, f, true)
			}
		}},
		{name: "a blob is missing, a link leads elsewhere", files: 1, hashes: true, hidden: 3, make: func(c hubCache) {
			c.download(sourcetest.Commit, truth[0], true)
			c.link("snapshots/"+sourcetest.Commit+"/gone", strings.Repeat("0", 40))
			c.link("snapshots/"+sourcetest.Commit+"/part", strings.Repeat("0", 40)+".incomplete")
			c.write("blobs/"+strings.Repeat("0", 40)+".incomplete", "half of it")
			if err := os.Symlink("/etc/passwd", filepath.Join(c.repo, "snapshots", sourcetest.Commit, "passwd")); err != nil {
				c.t.Fatal(err)
			}
		}},
		{name: "a pull request", revision: "refs/pr/1", files: len(truth), hashes: true, complete: true, make: func(c hubCache) {
			whole(c)
			c.write("refs/refs/pr/1", sourcetest.Commit+"\n")
		}},
		{name: "a commit by its name", revision: sourcetest.Commit, files: len(truth), hashes: true, complete: true, make: whole},
	} {
		t.Run(c.name, func(t *testing.T) {
			cache := newHubCache(t)
			c.make(cache)
			if c.revision == "" {
				cache.write("refs/main", sourcetest.Commit)
			}
			src := offline(t, cache.dir, c.revision, nil)
			l, err := src.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if l.Revision != sourcetest.Commit || l.Complete != c.complete || !l.Gated || l.Time.IsZero() || len(l.Files) != c.files || len(l.Hidden) != c.hidden {
				t.Fatalf("got %+v", l)
			}
			for i, e := range l.Files {
				f := truth[i]
				want := sources.Entry{Path: f.Path, Size: f.Size}
				if strings.HasSuffix(f.Path, ".safetensors") && c.hashes {
					want.SHA256 = f.SHA256()
				} else if c.hashes {
					want.GitOID = blobName(f)
				}
				if e != want {
					t.Errorf("got %+v, want %+v", e, want)
				}
			}
		})
	}
}

// TestHubCacheHostile: what is in a tree is checked as any listing is, and what is not there is said, with what is.
func TestHubCacheHostile(t *testing.T) {
	cache := newHubCache(t)
	cache.write("refs/main", sourcetest.Commit)
	cache.write("trees/"+sourcetest.Commit+".json", `{"format_version":1,"files":{"../a":{"size":1,"blob_id":""},"b":{"size":-1},"c":{"size":2,"blob_id":"x"},
		"c":{"size":3},"d/e":{"size":4},"d":{"size":5},"f":{"size":6,"lfs_sha256":"`+strings.Repeat("a", 64)+`","lfs_size":7},"g":{"size":"8"}}}`)
	l, err := offline(t, cache.dir, "", nil).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []sources.Entry{{Path: "c", Size: 2}, {Path: "d/e", Size: 4}, {Path: "g", Size: 8}}
	if !reflect.DeepEqual(l.Files, want) || len(l.Hidden) != 5 {
		t.Errorf("got %+v", l)
	}
	cache.write("refs/moved", otherCommit)
	_, err = offline(t, cache.dir, "moved", nil).List(t.Context())
	if !errors.Is(err, sources.ErrOffline) || strings.Contains(err.Error(), "on disk:") {
		t.Errorf("got %v", err)
	}
	cache.download(sourcetest.Commit, sourcetest.Small()[0], true)
	_, err = offline(t, cache.dir, "moved", nil).List(t.Context())
	if !errors.Is(err, sources.ErrOffline) || !strings.Contains(err.Error(), "the list of files at moved is not on disk") ||
		!strings.Contains(err.Error(), "files of these commits are on disk: "+sourcetest.Commit) {
		t.Errorf("got %v", err)
	}
	for _, bad := range []string{"", "main", "../../x", strings.Repeat("z", 40), sourcetest.Commit + "0"} {
		cache.write("refs/bad", bad)
		if _, err := offline(t, cache.dir, "bad", nil).List(t.Context()); !errors.Is(err, sources.ErrOffline) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestHubCacheNewest: of two commits that a branch was at, the one that was found out last is taken, but for one of which only a few files are there.
func TestHubCacheNewest(t *testing.T) {
	truth := sourcetest.Small()
	s := sourcetest.Start(t, &sourcetest.Server{Files: truth})
	kept := newKeeper()
	o := options(t)
	o.Keep = kept
	online, err := newHub(t, s, o).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list := func(cache hubCache) *sources.Listing {
		o := options(t)
		o.Keep, o.HubCache, o.Offline = kept, cache.dir, true
		l, err := newHub(t, s, o).List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	cache := newHubCache(t)
	ref := filepath.Join(cache.repo, "refs", "main")
	cache.write("refs/main", otherCommit)
	cache.download(otherCommit, truth[0], true)
	at := func(when time.Time) {
		if err := os.Chtimes(ref, when, when); err != nil {
			t.Fatal(err)
		}
	}
	at(time.Now().Add(time.Hour))
	if l := list(cache); !reflect.DeepEqual(l, online) {
		t.Errorf("a few files are preferred to a whole listing: %+v", l)
	}
	cache.tree(otherCommit, 1, truth[:2])
	if l := list(cache); l.Revision != otherCommit || len(l.Files) != 2 || !l.Complete {
		t.Errorf("the newer commit is not taken: %+v", l)
	}
	at(time.Now().Add(-time.Hour))
	if l := list(cache); !reflect.DeepEqual(l, online) {
		t.Errorf("the older commit is taken: %+v", l)
	}
}

// TestHubCacheTreeOnline: with a network, the tree that huggingface_hub kept of the commit is not asked for again.
func TestHubCacheTreeOnline(t *testing.T) {
	truth := sourcetest.Small()
	s := sourcetest.Start(t, &sourcetest.Server{Files: truth})
	first, err := newHub(t, s, options(t)).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cache := newHubCache(t)
	cache.tree(sourcetest.Commit, 1, truth)
	mark := len(s.Log(0))
	o := options(t)
	o.HubCache = cache.dir
	l, err := newHub(t, s, o).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := len(s.Log(mark)); n != 1 || !reflect.DeepEqual(l, first) {
		t.Errorf("%d requests, %+v", n, l)
	}
}

// TestHubCacheBlob: a file is read from the blob that its snapshot links to, also under a name that is none of its hashes, as other clients
// choose. A link to anywhere else is not followed.
func TestHubCacheBlob(t *testing.T) {
	f := sourcetest.Small()[0]
	cache := newHubCache(t)
	cache.write("blobs/another-name", string(f.Slice(0, f.Size)))
	cache.link("snapshots/"+sourcetest.Commit+"/"+f.Path, "another-name")
	cache.write("outside", string(f.Slice(0, f.Size)))
	if err := os.Symlink("../../outside", filepath.Join(cache.repo, "snapshots", sourcetest.Commit, "outside")); err != nil {
		t.Fatal(err)
	}
	l := &sources.Listing{Name: "hf://org/small@main", Revision: sourcetest.Commit}
	b := sources.OpenHubCache(cache.dir, l, &sources.Entry{Path: f.Path, Size: f.Size, SHA256: strings.Repeat("1", 64)})
	if b == nil {
		t.Fatal("not found")
	}
	defer b.Close()
	got := make([]byte, f.Size)
	if err := b.ReadAt(t.Context(), got, 0); err != nil || string(got) != string(f.Slice(0, f.Size)) {
		t.Errorf("wrong bytes, or %v", err)
	}
	for _, e := range []sources.Entry{{Path: f.Path, Size: f.Size + 1}, {Path: "outside", Size: f.Size}, {Path: "nonesuch", Size: f.Size}} {
		if b := sources.OpenHubCache(cache.dir, l, &e); b != nil {
			t.Errorf("%+v: opened", e)
		}
	}
}

// TestHubCachePlanted: pipes where huggingface_hub keeps directories, lists, links and content are not there; nobody waits for them.
func TestHubCachePlanted(t *testing.T) {
	file := sourcetest.Small()[0]
	commit := "snapshots/" + sourcetest.Commit
	for _, x := range []struct {
		pipe          string
		listed, there bool
	}{
		{"", false, false}, {"refs", false, false}, {"refs/main", false, false}, {"trees", true, true}, {"trees/" + sourcetest.Commit + ".json", true, true},
		{"snapshots", true, true}, {commit, true, true}, {commit + "/" + file.Path, true, true}, {"blobs", true, false}, {"blobs/" + blobName(file), true, false},
	} {
		cache := newHubCache(t)
		cache.write("refs/main", sourcetest.Commit)
		cache.tree(sourcetest.Commit, 1, sourcetest.Truth{file})
		cache.download(sourcetest.Commit, file, true)
		at := filepath.Join(cache.repo, x.pipe)
		if err := errors.Join(os.RemoveAll(at), unix.Mkfifo(at, 0o600)); err != nil {
			t.Fatal(err)
		}
		l, err := offline(t, cache.dir, "", nil).List(t.Context())
		if x.listed != (err == nil) || err != nil && !errors.Is(err, sources.ErrOffline) {
			t.Errorf("%s: %v", x.pipe, err)
		}
		if err != nil {
			continue
		}
		b := sources.OpenHubCache(cache.dir, l, &l.Files[0])
		if x.there != (b != nil) {
			t.Errorf("%s: the content is there: %t", x.pipe, b != nil)
		}
		if b != nil {
			b.Close()
		}
	}
}
