package cache

import (
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"weightfs/sources"
)

// TestHubCache reads in place what the cache of huggingface_hub has, and nothing that only looks like it.
func TestHubCache(t *testing.T) {
	const commit = "0123456789012345678901234567890123456789"
	dir := t.TempDir()
	repo := filepath.Join(dir, "models--org--name")
	for _, d := range []string{"blobs", "snapshots/" + commit + "/sub"} {
		must(t, os.MkdirAll(filepath.Join(repo, d), 0o755))
	}
	src := newFake()
	src.name, src.revision = "hf://org/name", commit
	var listing sources.Listing
	add := func(path string, hash func(data []byte, e *sources.Entry) string, place string) []byte {
		data := content0(uint64(len(src.files)+1), 1000+int64(len(src.files)))
		src.files = append(src.files, fakeFile{path: path, data: data, size: int64(len(data))})
		e := sources.Entry{Path: path, Size: int64(len(data))}
		name := hash(data, &e)
		if place != "" {
			must(t, os.WriteFile(filepath.Join(repo, place, name), data, 0o644))
		}
		listing.Files = append(listing.Files, e)
		return data
	}
	sha := func(data []byte, e *sources.Entry) string {
		sum := sha256.Sum256(data)
		e.SHA256 = hex.EncodeToString(sum[:])
		return e.SHA256
	}
	git := func(data []byte, e *sources.Entry) string {
		sum := sha1.Sum(append(fmt.Appendf(nil, "blob %d\x00", len(data)), data...))
		e.GitOID = hex.EncodeToString(sum[:])
		return e.GitOID
	}
	add("a-lfs", sha, "blobs")
	add("b-git", git, "blobs")
	add("c-absent", sha, "")
	add("d-short", sha, "blobs")
	must(t, os.Truncate(filepath.Join(repo, "blobs", listing.Files[3].SHA256), 999))
	add("e-part", func(p []byte, e *sources.Entry) string { return sha(p, e) + ".incomplete" }, "blobs")
	add("f-link", sha, "")
	must(t, os.Symlink("/etc/passwd", filepath.Join(repo, "blobs", listing.Files[5].SHA256)))
	add("sub/g-plain", func(p []byte, e *sources.Entry) string { sha(p, e); return "sub/g-plain" }, "snapshots/"+commit)
	add("sub/h-linked", sha, "blobs")
	must(t, os.Symlink("../../../blobs/"+listing.Files[7].SHA256, filepath.Join(repo, "snapshots", commit, "sub", "h-linked")))
	listing.Name, listing.Revision = src.name, commit

	c := newCache(t, Options{Hub: dir, Dir: t.TempDir()})
	f := c.Release(src, &listing)
	for i, e := range listing.Files {
		must(t, readBack(ctxb(), f, src, i, 5, e.Size))
	}
	wantRequests(t, src, request{"c-absent", 0, 1002}, request{"d-short", 0, 1003}, request{"e-part", 0, 1004}, request{"f-link", 0, 1005})

	// A blob that is deleted there stays readable; one that is written to is an error.
	must(t, os.Remove(filepath.Join(repo, "blobs", listing.Files[0].SHA256)))
	must(t, readBack(ctxb(), f, src, 0, 0, 10))
	if _, err := f.ReadFile(ctxb(), "a-lfs", 1<<20); err != nil {
		t.Error(err)
	}
	must(t, os.WriteFile(filepath.Join(repo, "blobs", listing.Files[1].GitOID), []byte("other"), 0o644))
	isErr(t, readBack(ctxb(), f, src, 1, 0, 10), sources.ErrChanged)

	// Another repository, and none, look elsewhere.
	for _, name := range []string{"hf://org/other", "https://host/dir/"} {
		other := listing
		other.Name = name
		must(t, readBack(ctxb(), c.Release(src, &other), src, 7, 0, 10))
		wantRequests(t, src, request{"sub/h-linked", 0, 1007})
	}
}
