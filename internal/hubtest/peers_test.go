package hubtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"weightfs/internal/testrel"
)

// rebuild is a range of a file as a client of Xet's store puts it together.
func rebuild(t *testing.T, cas, hash string, start, end int64) []byte {
	t.Helper()
	a := do(t, "GET", cas+"/v2/reconstructions/"+hash, fmt.Sprintf("Range: bytes=%d-%d", start, end-1))
	var r struct {
		Skip  int64 `json:"offset_into_first_range"`
		Terms []xetTerm
		Xorbs map[string][]xetFetch
	}
	if err := json.Unmarshal(a.body, &r); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	var out []byte
	for _, term := range r.Terms {
		f := r.Xorbs[term.Hash][0]
		x := do(t, "GET", f.URL, fmt.Sprintf("Range: bytes=%d-%d", f.Ranges[0].Bytes.Start, f.Ranges[0].Bytes.End))
		if x.StatusCode != http.StatusPartialContent || f.Ranges[0].Chunks != term.Range {
			t.Fatalf("%d for %+v of %+v", x.StatusCode, f, term)
		}
		var n int64
		for frames := x.body; len(frames) > 0; {
			size := int64(frames[1]) | int64(frames[2])<<8 | int64(frames[3])<<16
			if frames[0] != 0 || frames[4] != 0 || !bytes.Equal(frames[1:4], frames[5:8]) {
				t.Fatalf("frame %x", frames[:8])
			}
			out, frames, n = append(out, frames[8:8+size]...), frames[8+size:], n+size
		}
		if n != term.Unpacked {
			t.Fatalf("%d bytes in %+v", n, term)
		}
	}
	return out[r.Skip:][:end-start]
}

func TestXetStore(t *testing.T) {
	const size = 2*xetXorb + 3*xetChunk + 17
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i) ^ byte(i>>13)
	}
	h := start(t, Config{Peers: true})
	h.Add(Repo{Name: "a/b", Files: []File{{Path: "m.safetensors", Size: size, Open: func() (Body, error) { return memory{bytes.NewReader(data)}, nil }}}})

	var token struct{ CasURL string }
	json.Unmarshal(do(t, "GET", h.URL+"/api/models/a/b/xet-read-token/main").body, &token)
	hash := do(t, "HEAD", h.URL+"/a/b/resolve/main/m.safetensors").Header.Get("X-Xet-Hash")
	var tree []treeEntry
	json.Unmarshal(do(t, "GET", h.URL+"/api/models/a/b/tree/main").body, &tree)
	if len(hash) != 64 || tree[0].XetHash != hash {
		t.Fatalf("hash %q, listed %+v", hash, tree)
	}
	for _, x := range [][2]int64{{0, size}, {0, 1}, {size - 1, size}, {xetXorb - 1, xetXorb + 1}, {xetChunk + 5, 3 * xetXorb / 2}, {2 * xetXorb, size}} {
		if got := rebuild(t, token.CasURL, hash, x[0], x[1]); !bytes.Equal(got, data[x[0]:x[1]]) {
			t.Errorf("%v: wrong bytes", x)
		}
	}
	if a := do(t, "GET", token.CasURL+"/v2/reconstructions/"+hash, fmt.Sprintf("Range: bytes=%d-%d", size, size+1)); a.StatusCode != http.StatusRequestedRangeNotSatisfiable {
		t.Errorf("past the end: %d", a.StatusCode)
	}
}

func TestPlainListing(t *testing.T) {
	r := testrel.DenseBF16()
	h := start(t, Config{Peers: true})
	h.AddRelease("demo/x", r)
	page := do(t, "GET", h.URL+"/plain/demo/x/").body
	if !bytes.Contains(page, []byte(`<a href="config.json">`)) {
		t.Errorf("listing %s", page)
	}
	f := r.File("config.json")
	if a := do(t, "GET", h.URL+"/plain/demo/x/config.json", "Range: bytes=2-5"); !bytes.Equal(a.body, f.Bytes()[2:6]) {
		t.Errorf("%d %q", a.StatusCode, a.body)
	}
	if a := do(t, "HEAD", h.URL+"/plain/demo/x/config.json"); a.ContentLength != f.Size {
		t.Errorf("length %d, not %d", a.ContentLength, f.Size)
	}
}

func TestPeersAreOff(t *testing.T) {
	h := start(t, Config{})
	h.AddRelease("demo/x", testrel.DenseBF16())
	for _, url := range []string{h.URL + "/plain/demo/x/", h.URL + "/api/models/demo/x/xet-read-token/main", h.CDN + "/xet/v2/reconstructions/" + "0"} {
		if a := do(t, "GET", url); a.StatusCode < 400 {
			t.Errorf("%s: %d", url, a.StatusCode)
		}
	}
}
