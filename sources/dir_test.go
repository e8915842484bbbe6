package sources_test

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"weightfs/sources"
	"weightfs/sources/sourcetest"
)

// TestDirListing: what belongs to a release and what does not.
func TestDirListing(t *testing.T) {
	dir := t.TempDir()
	for _, p := range []string{"b.txt", "a/b/c.json", ".gitattributes", "a/.hidden", ".git/config", ".cache/huggingface/x", "a/.x/y"} {
		put(t, filepath.Join(dir, p), []byte(p))
	}
	outside := filepath.Join(t.TempDir(), "outside")
	put(t, outside, []byte("outside"))
	for link, target := range map[string]string{"link": "b.txt", "linkdir": "a", "dangling": "nothing", "circle": "circle", "abs": outside} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	for _, err := range []error{
		syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600), os.WriteFile(filepath.Join(dir, "bad\xff"), nil, 0o600),
		os.WriteFile(filepath.Join(dir, "bad\nname"), nil, 0o600), os.WriteFile(filepath.Join(dir, `back\slash`), nil, 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	newest := time.Date(2030, 1, 2, 3, 4, 5, 6, time.UTC)
	if err := os.Chtimes(filepath.Join(dir, "b.txt"), newest, newest); err != nil {
		t.Fatal(err)
	}
	l, err := newDir(t, dir).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var files, hidden []string
	for _, f := range l.Files {
		files = append(files, f.Path)
	}
	for _, h := range l.Hidden {
		hidden = append(hidden, h.Path+": "+h.Reason)
	}
	if want := []string{".gitattributes", "a/.hidden", "a/b/c.json", "abs", "b.txt", "link"}; !reflect.DeepEqual(files, want) {
		t.Errorf("files %q", files)
	}
	for _, want := range []string{
		".git: a directory whose name", ".cache: a directory whose name", "a/.x: a directory whose name", "linkdir: a symbolic link to a directory", "dangling: a symbolic link to nothing",
		"circle: too many levels", "fifo: not a regular file", `"bad\xff": not valid UTF-8`, `"bad\nname": control character`, `back\slash: backslash`,
	} {
		if !strings.Contains("\n"+strings.Join(hidden, "\n"), "\n"+want) {
			t.Errorf("%q is not among the hidden: %q", want, hidden)
		}
	}
	if len(hidden) != 10 || !l.Time.Equal(newest) || l.Name != "file://"+dir || !l.Complete || l.Gated {
		t.Errorf("%d hidden %q; time %s, name %s", len(hidden), hidden, l.Time, l.Name)
	}
}

// TestDirChanged: whatever happens to a file after it was listed is found out, by all blobs of it and for ever.
func TestDirChanged(t *testing.T) {
	content := []byte(strings.Repeat("content ", 1000))
	for name, change := range map[string]func(path string) error{
		"written":   func(p string) error { return os.WriteFile(p, content, 0o644) },
		"grown":     func(p string) error { return os.WriteFile(p, append(content, 'x'), 0o644) },
		"truncated": func(p string) error { return os.Truncate(p, 5) },
		"emptied":   func(p string) error { return os.Truncate(p, 0) },
		"touched":   func(p string) error { return os.Chtimes(p, time.Unix(1, 0), time.Unix(1, 0)) },
		"deleted":   os.Remove,
		"replaced": func(p string) error {
			return errors.Join(os.WriteFile(p+"2", content, 0o644), os.Rename(p+"2", p))
		},
		"a directory": func(p string) error { return errors.Join(os.Remove(p), os.Mkdir(p, 0o755)) },
		"a pipe":      func(p string) error { return errors.Join(os.Remove(p), syscall.Mkfifo(p, 0o600)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "config.json")
			put(t, path, content)
			if err := os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
				t.Fatal(err)
			}
			src := newDir(t, dir)
			b := open(t, src, "config.json")
			p := make([]byte, 100)
			if err := sources.ReadAt(t.Context(), b, p, 50); err != nil {
				t.Fatal(err)
			}
			if err := change(path); err != nil {
				t.Fatal(err)
			}
			if err := sources.ReadAt(t.Context(), b, p, 50); !errors.Is(err, sources.ErrChanged) {
				t.Errorf("the open blob gives %v", err)
			}
			if b, err := src.Open(t.Context(), "config.json"); !errors.Is(err, sources.ErrChanged) {
				t.Errorf("another Open gives %v, %v", b, err)
			}
			b.Close()
		})
	}
}

// TestDirChangeSticks: a file that is put back is still not to be trusted.
func TestDirChangeSticks(t *testing.T) {
	dir := write(t, sourcetest.Small())
	src := newDir(t, dir)
	b := open(t, src, "config.json")
	path := filepath.Join(dir, "config.json")
	if err := os.Rename(path, path+"x"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := sources.ReadAt(t.Context(), b, make([]byte, 1), 0); !errors.Is(err, sources.ErrChanged) {
			t.Errorf("got %v", err)
		}
		if err := os.Rename(path+"x", path); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	b.Close()
}

func TestDirErrors(t *testing.T) {
	if _, err := sources.Dir(filepath.Join(t.TempDir(), "none")); !errors.Is(err, sources.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	file := filepath.Join(t.TempDir(), "x.gguf")
	put(t, file, nil)
	if _, err := newDir(t, file).List(t.Context()); err == nil || !strings.Contains(err.Error(), "neither a directory nor a .safetensors file") {
		t.Errorf("got %v", err)
	}
}
