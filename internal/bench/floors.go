package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// touched keeps compilers from leaving out reads whose values nobody uses.
var touched atomic.Int64

// memcpy copies 32 MiB buffers, which are beyond the caches.
func memcpy() result {
	src, dst := make([]byte, 32<<20), make([]byte, 32<<20)
	for i := range src {
		src[i], dst[i] = byte(i), 1
	}
	var r result
	r.Start = time.Now()
	for time.Since(r.Start) < 300*time.Millisecond {
		start := time.Now()
		copy(dst, src)
		r.Parts = append(r.Parts, time.Since(start).Seconds())
		r.Bytes += int64(len(dst))
	}
	r.End = time.Now()
	touched.Store(int64(dst[0]))
	return r
}

// writeFile makes a file of 2 MiB-aligned writes, which is what gives large folios in the page cache.
func writeFile(path string, size int64) (result, error) {
	f, err := os.Create(path)
	if err != nil {
		return result{}, err
	}
	defer f.Close()
	buf := make([]byte, 2<<20)
	for i := range buf {
		buf[i] = byte(i)
	}
	return job{}.timed(func(*result) (int64, error) {
		for off := int64(0); off < size; off += int64(len(buf)) {
			if _, err := f.WriteAt(buf, off); err != nil {
				return 0, err
			}
		}
		return size, nil
	})
}

// socket sends bytes over one loopback connection, with nothing around them.
func socket(size int64) (result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return result{}, err
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		buf := make([]byte, 256<<10)
		for sent := int64(0); sent < size; sent += int64(len(buf)) {
			if _, err := c.Write(buf); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return result{}, err
	}
	defer c.Close()
	buf := make([]byte, 1<<20)
	return job{}.timed(func(*result) (n int64, err error) {
		for n < size && err == nil {
			var k int
			k, err = c.Read(buf)
			n += int64(k)
		}
		return n, err
	})
}

// connections is how many the client uses: as many as weightfs does for one host.
const connections = 16

// get is the parallel range client: the least that anybody must do who wants these ranges, with as many connections as weightfs has. Where
// redirects lead is found out before the clock starts, as a mount knows it.
func (j job) get() (result, error) {
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}}
	final := map[string]string{}
	for _, g := range j.Groups {
		for i, x := range g {
			if final[x.URL] == "" {
				u, err := resolve(client, x.URL)
				if err != nil {
					return result{}, err
				}
				final[x.URL] = u
			}
			g[i].URL = final[x.URL]
		}
	}
	return j.timed(func(r *result) (total int64, err error) {
		for _, g := range j.Groups {
			one, err := job{Threads: connections}.parallel(len(g), func(i int) (int64, error) { return fetch(client, g[i]) })
			if err != nil {
				return 0, err
			}
			total += one.Bytes
			r.Parts = append(r.Parts, one.seconds())
		}
		return total, nil
	})
}

// resolve follows redirects and returns where they lead. The connection that it used stays open.
func resolve(client *http.Client, url string) (string, error) {
	q, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	q.Header.Set("Range", "bytes=0-0")
	r, err := client.Do(q)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	io.Copy(io.Discard, r.Body)
	return r.Request.URL.String(), nil
}

var fetchBuffers = sync.Pool{New: func() any { p := make([]byte, 1<<20); return &p }}

func fetch(client *http.Client, g get) (int64, error) {
	q, err := http.NewRequest(http.MethodGet, g.URL, nil)
	if err != nil {
		return 0, err
	}
	q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", g.Start, g.End-1))
	r, err := client.Do(q)
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusPartialContent {
		return 0, fmt.Errorf("%s: %s", g.URL, r.Status)
	}
	buf := fetchBuffers.Get().(*[]byte)
	defer fetchBuffers.Put(buf)
	n := int64(0)
	for err == nil {
		var k int
		k, err = r.Body.Read(*buf)
		n += int64(k)
	}
	if err != io.EOF || n != g.End-g.Start {
		return 0, fmt.Errorf("%s: %d bytes of %d: %w", g.URL, n, g.End-g.Start, err)
	}
	return n, nil
}

// split cuts a range into requests of at most 8 MiB, the runs that weightfs fetches.
func split(url string, s span) []get {
	const run = 8 << 20
	var out []get
	for off := s.Start; off < s.End; off += run {
		out = append(out, get{url, span{off, min(off+run, s.End)}})
	}
	return out
}

// inPageCache brings a file into memory anew, in folios as large as the disk's file system makes them: the kernel may have split what was there.
func inPageCache(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := f.Sync(); err != nil { // what is not on disk cannot be dropped
		return err
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		return err
	}
	p, err := unix.Mmap(int(f.Fd()), 0, int(st.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	defer unix.Munmap(p)
	_ = unix.Madvise(p, unix.MADV_HUGEPAGE) // advice: kernels without huge pages refuse it
	return unix.Madvise(p, unix.MADV_POPULATE_READ)
}
