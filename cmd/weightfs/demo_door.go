package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// door is a way into the tree that another process serves: a mount, or HTTP where a mount is impossible.
type door interface {
	list(path string) ([]listed, error)
	// read returns the bytes [off, off+n) of a file, or all of it if n is negative.
	read(path string, off, n int64) ([]byte, error)
	close() error
}

// noFUSE says why this machine or this user cannot mount, or "".
func noFUSE() string {
	f, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		return oneLine(err.Error())
	}
	f.Close()
	if _, err := exec.LookPath("fusermount3"); err == nil {
		return ""
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil || caps[0].Effective&(1<<unix.CAP_SYS_ADMIN) == 0 {
		return "this process may not mount (no CAP_SYS_ADMIN), and there is no fusermount3"
	}
	return ""
}

// child is this program with other arguments and with an environment that knows only the stand-in hub.
func child(ctx context.Context, endpoint, home string, args ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("starting weightfs: %w", err)
	}
	c := exec.CommandContext(ctx, self, args...)
	c.Args[0] = "weightfs"
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(strings.ToUpper(e), "=")
		if !strings.HasPrefix(name, "HF_") && !strings.HasPrefix(name, "HUGGING") && !strings.HasSuffix(name, "_PROXY") {
			c.Env = append(c.Env, e)
		}
	}
	c.Env = append(c.Env, "HF_ENDPOINT="+endpoint, "HF_HUB_OFFLINE=0", "HF_HOME="+filepath.Join(home, "hf"))
	return c, nil
}

// mountDoor is a mount by a daemon.
type mountDoor struct {
	dir            string
	endpoint, home string
}

func openMount(ctx context.Context, endpoint, home string, sources []string) (*mountDoor, error) {
	d := &mountDoor{dir: filepath.Join(home, "mnt"), endpoint: endpoint, home: home}
	if err := os.Mkdir(d.dir, 0o777); err != nil {
		return nil, err
	}
	args := append([]string{"mount", "--daemon", "--cache-dir=" + filepath.Join(home, "cache")}, sources...)
	return d, d.run(ctx, append(args, d.dir)...)
}

func (d *mountDoor) run(ctx context.Context, args ...string) error {
	c, err := child(ctx, d.endpoint, d.home, args...)
	if err != nil {
		return err
	}
	// The daemon keeps what it inherits: a pipe here would never end.
	said, err := os.CreateTemp(d.home, "said")
	if err != nil {
		return err
	}
	defer said.Close()
	c.Stderr = said
	if err := c.Run(); err != nil {
		b, _ := os.ReadFile(said.Name())
		return fmt.Errorf("weightfs %s: %w: %s", args[0], err, oneLine(strings.TrimSpace(string(b))))
	}
	return nil
}

func (d *mountDoor) list(path string) ([]listed, error) {
	entries, err := os.ReadDir(filepath.Join(d.dir, path))
	if err != nil {
		return nil, err
	}
	out := make([]listed, len(entries))
	for i, e := range entries {
		fi, err := e.Info()
		if err != nil {
			return nil, err
		}
		out[i] = listed{Path: e.Name(), Size: fi.Size(), Dir: e.IsDir()}
	}
	return out, nil
}

func (d *mountDoor) read(path string, off, n int64) ([]byte, error) {
	f, err := os.Open(filepath.Join(d.dir, path))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if n < 0 {
		return io.ReadAll(f)
	}
	p := make([]byte, n)
	_, err = f.ReadAt(p, off)
	return p, err
}

func (d *mountDoor) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return d.run(ctx, "umount", d.dir)
}

// httpDoor is a server.
type httpDoor struct {
	url  string
	cmd  *exec.Cmd
	said bytes.Buffer
}

func openHTTP(ctx context.Context, endpoint, home string, sources []string) (*httpDoor, error) {
	args := append([]string{"serve", "--json", "--listen=127.0.0.1:0", "--cache-dir=" + filepath.Join(home, "cache")}, sources...)
	c, err := child(ctx, endpoint, home, args...)
	if err != nil {
		return nil, err
	}
	d := &httpDoor{cmd: c}
	c.Stderr = &d.said
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("starting weightfs serve: %w", err)
	}
	var hello struct {
		URL string `json:"url"`
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &hello)
	}
	if err != nil {
		return nil, fmt.Errorf("weightfs serve: %w: %s", errors.Join(err, c.Wait()), oneLine(d.said.String()))
	}
	d.url = hello.URL
	return d, nil
}

func (d *httpDoor) get(path string, headers ...string) ([]byte, error) {
	q, err := http.NewRequest(http.MethodGet, d.url+(&url.URL{Path: path}).EscapedPath(), nil)
	if err != nil {
		return nil, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err == nil && r.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: %s: %s", path, r.Status, oneLine(string(b)))
	}
	return b, err
}

func (d *httpDoor) list(path string) ([]listed, error) {
	b, err := d.get(strings.TrimSuffix(path, "/")+"/", "Accept", "application/json")
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Name string
		Dir  bool
		Size int64
	}
	if err := json.Unmarshal(b, &entries); err != nil {
		return nil, fmt.Errorf("listing %s: %w", path, err)
	}
	out := make([]listed, len(entries))
	for i, e := range entries {
		out[i] = listed{Path: e.Name, Size: e.Size, Dir: e.Dir}
	}
	return out, nil
}

func (d *httpDoor) read(path string, off, n int64) ([]byte, error) {
	if n < 0 {
		return d.get(path)
	}
	if n == 0 {
		return nil, nil
	}
	b, err := d.get(path, "Range", fmt.Sprintf("bytes=%d-%d", off, off+n-1))
	if err == nil && int64(len(b)) != n {
		err = fmt.Errorf("%s: %d bytes of [%d, %d)", path, len(b), off, off+n)
	}
	return b, err
}

func (d *httpDoor) close() error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if err := d.cmd.Wait(); err != nil {
		return fmt.Errorf("weightfs serve: %w: %s", err, oneLine(d.said.String()))
	}
	return nil
}
