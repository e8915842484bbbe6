package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"

	"weightfs/internal/testrel"
)

// Every release of the group formats dequantizes to the tensor whose SHA-256 was made without this repository's code.
func TestFormats(t *testing.T) {
	releases := testrel.ByName("formats")
	if len(releases) < 30 {
		t.Fatalf("%d releases", len(releases))
	}
	for _, r := range releases {
		t.Run(r.Name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), r.Name)
			if err := testrel.WriteDir(dir, r); err != nil {
				t.Fatal(err)
			}
			view := "bf16"
			if r.IsCast() {
				view = "bf16-all"
			}
			for name, want := range r.Digests {
				b := tensorOf(t, dir, view+"/model-00001-of-00001.safetensors", name)
				if h := sha256.Sum256(b); hex.EncodeToString(h[:]) != want {
					t.Errorf("%s: %d bytes with SHA-256 %x, want %s", name, len(b), h, want)
				}
			}
		})
	}
}

// tensorOf reads one tensor of a view of a local release; header and place are taken from the file with encoding/json.
func tensorOf(t *testing.T, dir, path, name string) []byte {
	t.Helper()
	ctx := context.Background()
	set := settings{cacheDir: noCacheDir}
	session, o, err := set.openOne(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	p, err := o.openFile(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(&content{ctx: ctx, reader: o.reader, plan: p})
	if err != nil {
		t.Fatal(err)
	}
	n := binary.LittleEndian.Uint64(b)
	var header map[string]jsonTensor
	if err := json.Unmarshal(b[8:8+n], &header); err != nil {
		t.Fatal(err)
	}
	x, ok := header[name]
	if !ok {
		t.Fatalf("%s has no %s", path, name)
	}
	return b[8+n:][x.Offsets[0]:x.Offsets[1]]
}
