// Package sourcetest has what every source is tested with: the conformance suite [Run], files whose bytes are a function of their name
// and the offset, and a scripted pair of servers, hub and CDN, that can be made to fail in each way that real ones have.
package sourcetest

import (
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
)

// File is one file of a release, as it should be read.
type File struct {
	Path string
	Size int64
	Fill func(p []byte, off int64) // the bytes [off, off+len(p))
}

// Truth is the files of a release.
type Truth []File

// Find is the file of that path, nil if there is none.
func (t Truth) Find(path string) *File {
	for i := range t {
		if t[i].Path == path {
			return &t[i]
		}
	}
	return nil
}

// Bytes is a file with the given content.
func Bytes(path string, content []byte) File {
	return File{Path: path, Size: int64(len(content)), Fill: func(p []byte, off int64) { copy(p, content[off:]) }}
}

// Synthetic is a file of size bytes that differ everywhere: the eight bytes at 8·i are splitmix64 of the path's hash and i. A shift, a hole
// or a mix of two files shows in any 8 bytes.
func Synthetic(path string, size int64) File {
	h := fnv.New64a()
	io.WriteString(h, path)
	seed := h.Sum64()
	return File{Path: path, Size: size, Fill: func(p []byte, off int64) {
		var word [8]byte
		for i := 0; i < len(p); {
			at := off + int64(i)
			binary.LittleEndian.PutUint64(word[:], splitmix(seed+uint64(at/8)))
			i += copy(p[i:], word[at%8:])
		}
	}}
}

func splitmix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Small is a release of a few files: two weight files, a config, an empty file, names that need escaping.
func Small() Truth {
	return Truth{
		Bytes("README.md", []byte("# small\n")),
		Bytes("a b/ü#?%20+&.txt", []byte("a name that needs escaping\n")),
		Bytes("config.json", []byte(`{"model_type": "small"}`)),
		Bytes("empty.txt", nil),
		Synthetic("model-00001-of-00002.safetensors", 300_001),
		Synthetic("model-00002-of-00002.safetensors", 65_537),
	}
}

// Slice is the bytes [off, off+n).
func (f *File) Slice(off, n int64) []byte {
	p := make([]byte, n)
	f.Fill(p, off)
	return p
}

// Diff says where got differs from the bytes at off, "" if it does not.
func (f *File) Diff(got []byte, off int64) string {
	want := f.Slice(off, int64(len(got)))
	if bytes.Equal(got, want) {
		return ""
	}
	i := 0
	for got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%s: byte %d is %#02x, want %#02x", f.Path, off+int64(i), got[i], want[i])
}

// SHA256 is the hash of the content in hex, as the Hub names an LFS file.
func (f *File) SHA256() string { return f.sum(sha256.New()) }

// GitOID is the git blob's name in hex.
func (f *File) GitOID() string {
	h := sha1.New()
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return f.sum(h)
}

func (f *File) sum(h hash.Hash) string {
	const step = 1 << 20
	for off := int64(0); off < f.Size; off += step {
		h.Write(f.Slice(off, min(step, f.Size-off)))
	}
	return hex.EncodeToString(h.Sum(nil))
}
