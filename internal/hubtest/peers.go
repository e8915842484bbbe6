package hubtest

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// What other programs that mount releases need, served with the same latency and rate as everything else, so that they can be measured
// beside weightfs: a plain directory listing at /plain/ORG/NAME/, and the content-addressed store of Xet on the CDN's port. All of it is
// off unless Config.Peers is set.

// Frames of a xorb, Xet's container: chunks of 64 KiB stored as they are, each behind a header of eight bytes. Real xorbs hold at most 64 MiB.
const (
	xetChunk      = 64 << 10
	xetHeader     = 8
	xetXorbChunks = 960
	xetXorb       = xetXorbChunks * xetChunk
)

// answerPlain is /plain/ORG/NAME/PATH: a page with links for a directory, the content for a file. Only the root is a directory.
func (h *Hub) answerPlain(q *request) *reply {
	if len(q.segments) < 4 {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	id, path := q.segments[1]+"/"+q.segments[2], strings.Join(q.segments[3:], "/")
	r := h.lookup(id)
	if r == nil {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	c, p := h.at(r, "main")
	if p != nil {
		return p
	}
	if path == "" {
		return plainIndex(c)
	}
	b := c.find(path)
	if b == nil {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	q.file(kindData, id, path)
	q.size = b.Size
	body, err := b.Open()
	if err != nil {
		return failed(err)
	}
	header := http.Header{"Last-Modified": {c.date.UTC().Format(http.TimeFormat)}}
	return content(q, header, strconv.Quote(gitHash([]byte(b.commit + b.Path))[:32]), body, b.Size)
}

func plainIndex(c *commit) *reply {
	var page strings.Builder
	page.WriteString("<html><body>\n")
	for _, b := range c.blobs {
		if !strings.Contains(b.Path, "/") {
			fmt.Fprintf(&page, "<a href=\"%s\">%s</a>\n", url.PathEscape(b.Path), html.EscapeString(b.Path))
		}
	}
	page.WriteString("</body></html>\n")
	return textReply(http.StatusOK, "text/html; charset=utf-8", []byte(page.String()))
}

// xetToken is /api/models/ID/xet-read-token/REV: where the store is. It asks for no credential.
func (h *Hub) xetToken() *reply {
	return jsonReply(map[string]any{"casUrl": h.CDN + "/xet", "exp": time.Now().Add(time.Hour).Unix(), "accessToken": "stand-in"})
}

// answerXet is everything below /xet/ of the CDN: /v1 and /v2/reconstructions/HASH, and xorb/HASH/K. A file's hash is its sha256.
func (h *Hub) answerXet(q *request) *reply {
	s := q.segments[1:]
	if len(s) != 3 {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	hash := s[2]
	if s[0] == "xorb" {
		hash = s[1]
	}
	b := h.blobOf(hash)
	if b == nil {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	q.size = b.Size
	switch {
	case s[0] == "xorb":
		return xorb(q, b, s[2])
	case s[0] == "v2" && s[1] == "reconstructions":
		return h.reconstruction(q, b, hash)
	}
	return problem(http.StatusNotFound, "", "Not Found")
}

// blobOf is the LFS file with that sha256 in any repository that was asked for, or nil.
func (h *Hub) blobOf(sha string) *blob {
	h.mu.Lock()
	var blobs []*blob
	for _, r := range h.repos {
		for _, c := range r.commits {
			blobs = append(blobs, c.blobs...)
		}
	}
	h.mu.Unlock()
	for _, b := range blobs {
		if b.lfs() && b.hashes().sha256 == sha {
			return b
		}
	}
	return nil
}

type (
	xetRange struct {
		Start int64 `json:"start"`
		End   int64 `json:"end"`
	}
	xetTerm struct {
		Hash     string   `json:"hash"`
		Unpacked int64    `json:"unpacked_length"`
		Range    xetRange `json:"range"` // of chunks, the end exclusive
	}
	xetFetch struct {
		URL    string         `json:"url"`
		Ranges []xetFetchPart `json:"ranges"`
	}
	xetFetchPart struct {
		Chunks xetRange `json:"chunks"`
		Bytes  xetRange `json:"bytes"` // of the xorb, the end inclusive
	}
)

// reconstruction says which chunks of which xorbs a range of a file is made of: file bytes [k*xetXorb, ...) are xorb k.
func (h *Hub) reconstruction(q *request, b *blob, hash string) *reply {
	start, end, ranged := span(q.Header.Get("Range"), b.Size)
	if !ranged {
		start, end = 0, b.Size
	}
	if start >= end {
		return problem(http.StatusRequestedRangeNotSatisfiable, "", "past the end")
	}
	var terms []xetTerm
	xorbs := map[string][]xetFetch{}
	for k := start / xetXorb; k*xetXorb < end; k++ {
		base, limit := k*xetXorb, min((k+1)*xetXorb, b.Size)
		first, last := max(start-base, 0)/xetChunk, (min(end, limit)-base+xetChunk-1)/xetChunk
		chunks := xetRange{first, last}
		sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", hash, k))
		name := hex.EncodeToString(sum[:])
		stop := min(last*xetChunk, limit-base)
		terms = append(terms, xetTerm{name, stop - first*xetChunk, chunks})
		part := xetFetchPart{chunks, xetRange{first * (xetChunk + xetHeader), stop + last*xetHeader - 1}}
		xorbs[name] = []xetFetch{{fmt.Sprintf("%s/xet/xorb/%s/%d", h.CDN, hash, k), []xetFetchPart{part}}}
	}
	return jsonReply(map[string]any{"offset_into_first_range": start % xetXorb % xetChunk, "terms": terms, "xorbs": xorbs})
}

// xorb is the content of xorb k of a file.
func xorb(q *request, b *blob, number string) *reply {
	k, err := strconv.ParseInt(number, 10, 32)
	if err != nil || k < 0 || k*xetXorb >= b.Size {
		return problem(http.StatusNotFound, "", "Not Found")
	}
	body, err := b.Open()
	if err != nil {
		return failed(err)
	}
	q.kind, q.path = kindData, b.Path
	x := framed{body, k * xetXorb, min(xetXorb, b.Size-k*xetXorb)}
	q.size = x.size + (x.size+xetChunk-1)/xetChunk*xetHeader
	return content(q, http.Header{}, strconv.Quote(fmt.Sprint(b.commit[:12], k)), x, q.size)
}

// framed is the part [base, base+size) of a body in frames.
type framed struct {
	Body
	base, size int64
}

// ReadAt fills p with frames: for each chunk its header and its bytes.
func (x framed) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	for done < len(p) {
		i, at := (off+int64(done))/(xetChunk+xetHeader), (off+int64(done))%(xetChunk+xetHeader)
		n := min(xetChunk, x.size-i*xetChunk)
		if n <= 0 || at >= n+xetHeader {
			return done, io.EOF
		}
		if at < xetHeader {
			done += copy(p[done:], frameHeader(n)[at:])
			continue
		}
		step := min(int64(len(p)-done), n+xetHeader-at)
		k, err := x.Body.ReadAt(p[done:done+int(step)], x.base+i*xetChunk+at-xetHeader)
		if done += k; int64(k) < step {
			return done, err
		}
	}
	return done, nil
}

// frameHeader is version 0, the stored length, scheme 0 (as it is) and the length.
func frameHeader(n int64) []byte {
	var b [12]byte
	binary.LittleEndian.PutUint32(b[1:], uint32(n))
	binary.LittleEndian.PutUint32(b[5:], uint32(n))
	b[4] = 0
	return b[:xetHeader]
}
